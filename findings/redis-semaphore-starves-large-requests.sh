#!/usr/bin/env bash
# redis-semaphore 5.8.0: a MultiSemaphore that needs several permits waits until they are free at the same moment, and
# holds none of them back. Requests for one permit that come later take each permit first. So a steady flow of small
# requests, which never needs more than two of three permits, keeps the large one out until its timeout.
#
# Output seen on 30 November 2026 with Node 20.20.2, redis-semaphore 5.8.0, ioredis 5.11.1, Redis 7.0.15:
#   70 requests for one permit passed the request for three, which ended with: timeout
#
# Exits with 0 while this is so, and with 1 once the behaviour has changed. Needs a redis-server on the PATH.
set -euo pipefail
folder="$(mktemp -d)"
redis-server --port 0 --unixsocket "$folder/redis.sock" --save "" --dir "$folder" >/dev/null &
server=$!
trap 'kill "$server"; wait "$server" || true; rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes >/dev/null
npm install --silent --no-audit --no-fund ioredis@5.11.1 redis-semaphore@5.8.0
cat >run.mjs <<'SCRIPT'
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import { MultiSemaphore } from "redis-semaphore";

const redis = new Redis({ path: "redis.sock" });
const semaphoreFor = (permits, options) => new MultiSemaphore(redis, "api", 3, permits, options);
let held = semaphoreFor(1);
await held.acquire();
let end;
const large = semaphoreFor(3, { acquireTimeout: 1_500, retryInterval: 10 })
  .acquire()
  .then(
    () => (end = "acquired"),
    (error) => (end = error.message.split(" ").at(-1)),
  );
let passed = 0;
while (end === undefined) {
  const next = semaphoreFor(1);
  await next.acquire();
  if (end === undefined) passed += 1;
  await held.release();
  held = next;
  await sleep(20);
}
await large;
await held.release();
redis.disconnect();
console.log(`${passed} requests for one permit passed the request for three, which ended with: ${end}`);
process.exit(end === "timeout" && passed > 3 ? 0 : 1);
SCRIPT
node run.mjs
