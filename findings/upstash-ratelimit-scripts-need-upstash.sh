#!/usr/bin/env bash
# The Lua scripts of @upstash/ratelimit 2.2.0 begin with the flag "allow-key-locking", which Redis 7.0.15 does not know.
# Redis refuses such a script, so these limits cannot be tried on a Redis server of one's own. Without their first line
# the same scripts run there.
#
# Output seen on 1 December 2026 with Node 20.20.2, @upstash/ratelimit 2.2.0, ioredis 5.11.1, Redis 7.0.15:
#   as published:           ERR Unexpected flag in script shebang: allow-key-locking
#   without the first line: success true, 9 of 10 remaining
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
npm install --silent --no-audit --no-fund @upstash/ratelimit@2.2.0 ioredis@5.11.1
cat >run.mjs <<'SCRIPT'
import { Ratelimit } from "@upstash/ratelimit";
import { Redis } from "ioredis";

const client = new Redis(process.argv[2]);

/** The commands that a limiter sends, carried out by a Redis server. */
function redisThat(edit) {
  return {
    evalsha: async () => {
      throw new Error("NOSCRIPT");
    },
    eval: (script, keys, values) => client.eval(edit(script), keys.length, ...keys, ...values),
  };
}

async function firstCall(edit) {
  const limiter = Ratelimit.slidingWindow(10, "60 s");
  const limits = new Ratelimit({ redis: redisThat(edit), limiter, ephemeralCache: false });
  try {
    const { success, remaining } = await limits.limit("customer-1");
    return `success ${success}, ${remaining} of 10 remaining`;
  } catch (error) {
    return error.message;
  }
}

const asPublished = await firstCall((script) => script);
const withoutFlags = await firstCall((script) => script.replace(/^#!.*\n/, ""));
console.log(`as published:           ${asPublished}`);
console.log(`without the first line: ${withoutFlags}`);
client.disconnect();
process.exit(/allow-key-locking/.test(asPublished) && /success true/.test(withoutFlags) ? 0 : 1);
SCRIPT
node run.mjs "$folder/redis.sock"
