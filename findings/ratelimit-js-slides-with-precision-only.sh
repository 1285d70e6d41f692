#!/usr/bin/env bash
# The documentation of ratelimit.js 1.8.0 says that it uses sliding windows. It does so for rules with a `precision`
# alone. The windows of other rules, such as the first one of the documentation, begin at multiples of their length on
# the clock. So a rule of 5 calls in 4 s allows 10 within 1.5 s.
#
# Output seen on 1 December 2026 with Node 20.20.2, ratelimit.js 1.8.0, ioredis 5.11.1, Redis 7.0.15:
#   no precision:   10 of 30 calls within 1.5 s around the turn of a window
#   precision of 1: 5 of 30 calls within 1.5 s around the turn of a window
#
# Exits with 0 while this is so, and with 1 once the behaviour has changed. Needs a redis-server on the PATH.
set -euo pipefail
folder="$(mktemp -d)"
redis-server --port 0 --unixsocket "$folder/redis.sock" --save "" --dir "$folder" >/dev/null &
server=$!
trap 'kill "$server"; wait "$server" || true; rm -rf "$folder"' EXIT
until redis-cli -s "$folder/redis.sock" ping >/dev/null 2>&1; do sleep 0.1; done
cd "$folder"
npm init --yes >/dev/null
npm install --silent --no-audit --no-fund ratelimit.js@1.8.0 ioredis@5.11.1
cat >run.mjs <<'SCRIPT'
import { promisify } from "node:util";
import { Redis } from "ioredis";
import { RateLimit } from "ratelimit.js";

const WINDOW_MS = 4_000;
const client = new Redis(process.argv[2]);
const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function countAllowed(name, rule) {
  const limiter = new RateLimit(client, [{ interval: WINDOW_MS / 1_000, limit: 5, ...rule }]);
  const isRefused = promisify(limiter.incr.bind(limiter));
  await wait(WINDOW_MS - (Date.now() % WINDOW_MS) + WINDOW_MS - 750);
  let allowed = 0;
  for (let call = 0; call < 30; call += 1) {
    if (!(await isRefused(name))) allowed += 1;
    await wait(50);
  }
  console.log(`${name.padEnd(15)} ${allowed} of 30 calls within 1.5 s around the turn of a window`);
  return allowed;
}

const allowed = [
  await countAllowed("no precision:", {}),
  await countAllowed("precision of 1:", { precision: 1 }),
];
client.disconnect();
process.exit(allowed.join() === "10,5" ? 0 : 1);
SCRIPT
node run.mjs "$folder/redis.sock"
