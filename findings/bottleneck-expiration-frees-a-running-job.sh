#!/usr/bin/env bash
# bottleneck 2.19.5: when a job reaches its `expiration`, its promise rejects and its place is free, but the job goes on.
# So with `maxConcurrent: 1` two jobs run at the same time, and an API that allows one call at a time gets two.
#
# Output seen on 30 November 2026 with Node 20.20.2, bottleneck 2.19.5:
#   This job timed out after 50 ms.
#   2 jobs ran at the same time, with maxConcurrent 1
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

const limiter = new Bottleneck({ maxConcurrent: 1 });
let running = 0;
let most = 0;
const job = async (ms) => {
  running += 1;
  most = Math.max(most, running);
  await sleep(ms);
  running -= 1;
};
const expired = limiter.schedule({ expiration: 50 }, () => job(500)).catch(({ message }) => message);
const next = limiter.schedule(() => job(100));
console.log(await expired);
await next;
console.log(`${most} jobs ran at the same time, with maxConcurrent 1`);
process.exit(most === 2 ? 0 : 1);
SCRIPT
node run.mjs
