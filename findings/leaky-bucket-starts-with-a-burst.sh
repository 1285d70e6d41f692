#!/usr/bin/env bash
# leaky-bucket 4.1.4 lets its whole capacity start at once, and drains at the same time. So a bucket with a capacity of
# 10 calls per second starts 19 or 20 calls within one second after each pause: a token bucket, in spite of its name.
#
# Output seen on 30 November 2026 with Node 20.20.2, leaky-bucket 4.1.4:
#   10 calls within the first 50 ms, 19 within one second
#
# Exits with 0 while this is so, and with 1 once the behaviour has changed.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes >/dev/null
npm install --silent --no-audit --no-fund leaky-bucket@4.1.4
cat >run.mjs <<'SCRIPT'
import LeakyBucket from "leaky-bucket";

const bucket = new LeakyBucket({ capacity: 10, interval: 1, timeout: 60 });
const atMs = [];
const call = async () => {
  await bucket.throttle(1);
  atMs.push(performance.now());
};
await Promise.all(Array.from({ length: 25 }, call));
const within = (ms) => atMs.filter((at) => at < atMs[0] + ms).length;
console.log(`${within(50)} calls within the first 50 ms, ${within(1_000)} within one second`);
process.exit(within(50) >= 10 && within(1_000) >= 15 ? 0 : 1);
SCRIPT
node run.mjs
