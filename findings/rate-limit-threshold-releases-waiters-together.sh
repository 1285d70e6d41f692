#!/usr/bin/env bash
# rate-limit-threshold 0.2.1 limits one caller at a time. Callers that wait together all wait for the same moment, and
# then all start. So with a limit of 3 calls per second, 27 of 30 calls start together after one second.
#
# Output seen on 1 December 2026 with Node 20.20.2, rate-limit-threshold 0.2.1:
#   30 calls at once: 3 after 0.0 s, 27 after 1.0 s
#
# Exits with 0 while this is so, and with 1 once the behaviour has changed.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes >/dev/null
npm install --silent --no-audit --no-fund rate-limit-threshold@0.2.1
cat >run.mjs <<'SCRIPT'
import { RateLimitThreshold } from "rate-limit-threshold";

const threshold = new RateLimitThreshold(3, 1);
const startMs = performance.now();
const starts = await Promise.all(
  Array.from({ length: 30 }, async () => {
    await threshold.limit();
    return ((performance.now() - startMs) / 1_000).toFixed(1);
  }),
);
const counts = new Map();
for (const second of starts) counts.set(second, (counts.get(second) ?? 0) + 1);
const shown = [...counts].map(([second, calls]) => `${calls} after ${second} s`).join(", ");
console.log(`30 calls at once: ${shown}`);
process.exit(Math.max(...starts.map(Number)) < 2 ? 0 : 1);
SCRIPT
node run.mjs
