#!/usr/bin/env bash
# ioredis-mock 8.13.1 runs scripts in Lua 5.3, and Redis in Lua 5.1. A division gives a float there, so `10 / 2` becomes
# the text "5.0" instead of "5". A script that writes such a number reads something else back. Numbers are also returned
# with their fraction, where Redis returns 3 for 3.99. There is no cjson, cmsgpack, bit or struct.
#
# Output seen on 30 November 2026 with Node 20.20.2, ioredis-mock 8.13.1 and Redis 7.0.15:
#   return tostring(10 / 2)   mock "5.0"   Redis "5"
#   return 3.99               mock 3.99    Redis 3
#   return type(cjson)        mock "nil"   Redis "table"
#
# Exits with 0 while this is so, and with 1 once the behaviour has changed. Needs a redis-server on the PATH.
set -euo pipefail
folder="$(mktemp -d)"
redis-server --port 0 --unixsocket "$folder/redis.sock" --save "" --dir "$folder" >/dev/null &
server=$!
trap 'kill "$server"; wait "$server" || true; rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes >/dev/null
npm install --silent --no-audit --no-fund ioredis@5.11.1 ioredis-mock@8.13.1
cat >run.mjs <<'SCRIPT'
import { Redis } from "ioredis";
import RedisMock from "ioredis-mock";

const mock = new RedisMock();
const redis = new Redis({ path: "redis.sock" });
let isAsDescribed = true;
for (const script of ["return tostring(10 / 2)", "return 3.99", "return type(cjson)"]) {
  const [mocked, real] = (await Promise.all([mock, redis].map((client) => client.eval(script, 0)))).map(
    (result) => JSON.stringify(result),
  );
  console.log(`${script.padEnd(25)} mock ${mocked.padEnd(7)} Redis ${real}`);
  isAsDescribed &&= mocked !== real;
}
mock.disconnect();
redis.disconnect();
process.exit(isAsDescribed ? 0 : 1);
SCRIPT
node run.mjs
