#!/usr/bin/env bash
# RetryAgent of undici 7.30.2 reads Retry-After, but never waits longer than its option `maxTimeout`, which is 30 s by
# default. So after a 429 that asks for a minute it sends the request again 30 s too early, where one could expect that
# it gives up. Shown here with `maxTimeout: 500` and two seconds.
#
# Output seen on 30 November 2026 with Node 20.20.2, undici 7.30.2:
#   Retry-After: 2, maxTimeout 500 -> sent again after 515 ms
#   Retry-After: 2, default        -> sent again after 2002 ms
#
# Exits with 0 while this is so, and with 1 once the behaviour has changed.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes >/dev/null
npm install --silent --no-audit --no-fund undici@7.30.2
cat >run.mjs <<'SCRIPT'
import { once } from "node:events";
import { createServer } from "node:http";
import { Agent, request, RetryAgent } from "undici";

async function waitWith(options) {
  const atMs = [];
  const server = createServer((_request, response) => {
    atMs.push(performance.now());
    response.writeHead(atMs.length === 1 ? 429 : 200, { "retry-after": "2" }).end();
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const dispatcher = new RetryAgent(new Agent(), options);
  const { body } = await request(`http://127.0.0.1:${server.address().port}`, { dispatcher });
  await body.dump();
  await dispatcher.close();
  server.close();
  return Math.round(atMs[1] - atMs[0]);
}

const short = await waitWith({ maxTimeout: 500 });
const usual = await waitWith({});
console.log(`Retry-After: 2, maxTimeout 500 -> sent again after ${short} ms`);
console.log(`Retry-After: 2, default        -> sent again after ${usual} ms`);
process.exit(short < 1_900 && usual >= 1_990 ? 0 : 1);
SCRIPT
node run.mjs
