#!/usr/bin/env bash
# rate-limiter-flexible 11.4.0 with `execEvenly` spaces calls that arrive one after the other. The delay of a call follows
# from the points that are left, and not from the call before it. So calls that arrive together start unevenly: at 10
# calls a second, six of ten start within 100 ms, and the last two are 0.17 s apart.
#
# Output seen on 30 November 2026 with Node 20.20.2, rate-limiter-flexible 11.4.0:
#   starts in ms: 2 106 113 127 145 170 202 254 338 501
#   6 of 10 within 100 ms of the second one
#
# Exits with 0 while this is so, and with 1 once the behaviour has changed.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes >/dev/null
npm install --silent --no-audit --no-fund rate-limiter-flexible@11.4.0
cat >run.mjs <<'SCRIPT'
import { RateLimiterMemory } from "rate-limiter-flexible";

const limiter = new RateLimiterMemory({ points: 10, duration: 1, execEvenly: true });
const beganMs = performance.now();
const starts = await Promise.all(
  Array.from({ length: 10 }, async () => {
    await limiter.consume("key");
    return Math.round(performance.now() - beganMs);
  }),
);
starts.sort((one, other) => one - other);
const near = starts.filter((at) => at >= starts[1] && at < starts[1] + 100).length;
console.log(`starts in ms: ${starts.join(" ")}`);
console.log(`${near} of 10 within 100 ms of the second one`);
process.exit(near >= 4 ? 0 : 1);
SCRIPT
node run.mjs
