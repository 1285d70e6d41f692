#!/usr/bin/env bash
# bottleneck 2.19.5: incrementReservoir(3) on a limiter without a reservoir creates one of 3. From then on, the limiter
# starts three more jobs and then none, although nobody has set a reservoir.
#
# Output seen on 30 November 2026 with Node 20.20.2, bottleneck 2.19.5:
#   reservoir null, after incrementReservoir(3): 3
#   3 of 5 jobs have run, 2 wait
#
# Exits with 0 while this is so, and with 1 once the behaviour has changed.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes >/dev/null
npm install --silent --no-audit --no-fund bottleneck@2.19.5
cat >run.mjs <<'SCRIPT'
import { setTimeout as sleep } from "node:timers/promises";
import Bottleneck from "bottleneck";

const limiter = new Bottleneck({ maxConcurrent: 5 });
const before = await limiter.currentReservoir();
await limiter.incrementReservoir(3);
console.log(`reservoir ${before}, after incrementReservoir(3): ${await limiter.currentReservoir()}`);
let ran = 0;
for (let job = 0; job < 5; job += 1) limiter.schedule(async () => (ran += 1));
await sleep(500);
const waiting = limiter.queued();
console.log(`${ran} of 5 jobs have run, ${waiting} wait`);
process.exit(before === null && ran === 3 && waiting === 2 ? 0 : 1);
SCRIPT
node run.mjs
