#!/usr/bin/env bash
# ratelimiter 3.4.1 counts refused calls too, and its reset time moves with each of them. So a caller that tries more
# often than its limit is refused without end, also long after the reset time of its first refusal. async-ratelimiter
# 1.6.10, which offers the same interface, lets the full rate through.
#
# Output seen on 1 December 2026 with Node 20.20.2 and Redis 7.0.15, for 40 calls within 4 s at 5 calls/s:
#   ratelimiter       5 of 40 calls allowed, the last after 0.4 s; the first refusal named a reset after 1.1 s
#   async-ratelimiter 20 of 40 calls allowed, the last after 3.7 s; the first refusal named a reset after 0.2 s
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
npm install --silent --no-audit --no-fund ratelimiter@3.4.1 async-ratelimiter@1.6.10 ioredis@5.11.1
cat >run.mjs <<'SCRIPT'
import { promisify } from "node:util";
import AsyncRatelimiter from "async-ratelimiter";
import { Redis } from "ioredis";
import Ratelimiter from "ratelimiter";

const client = new Redis(process.argv[2]);
const limit = { max: 5, duration: 1_000 };
const plain = new Ratelimiter({ db: client, id: "plain", ...limit });
const getPlain = promisify(plain.get.bind(plain));
const byPromise = new AsyncRatelimiter({ db: client, ...limit });

async function countAllowed(name, get) {
  const startMs = Date.now();
  const allowedAt = [];
  let resetInMs;
  for (let call = 0; call < 40; call += 1) {
    const { remaining, reset, resetMs = reset * 1_000 } = await get();
    if (remaining > 0) allowedAt.push(Date.now() - startMs);
    else resetInMs ??= resetMs - startMs;
    await new Promise((resolve) => setTimeout(resolve, startMs + (call + 1) * 100 - Date.now()));
  }
  const last = (allowedAt.at(-1) / 1_000).toFixed(1);
  console.log(
    `${name.padEnd(17)} ${allowedAt.length} of 40 calls allowed, the last after ${last} s; ` +
      `the first refusal named a reset after ${(resetInMs / 1_000).toFixed(1)} s`,
  );
  return allowedAt.length;
}

const byPlain = await countAllowed("ratelimiter", getPlain);
const byOther = await countAllowed("async-ratelimiter", () => byPromise.get({ id: "promise" }));
client.disconnect();
process.exit(byPlain === 5 && byOther >= 15 ? 0 : 1);
SCRIPT
node run.mjs "$folder/redis.sock"
