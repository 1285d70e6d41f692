#!/usr/bin/env bash
# replicate 1.4.0 repeats a refused call up to five times. Its comments say that it obeys Retry-After, and otherwise waits
# longer each time. It does neither: all six requests leave within some ms, with a number of seconds, with a date, and
# without the header.
#
# Output seen on 1 December 2026 with Node 20.20.2, replicate 1.4.0:
#   Retry-After: 2         -> 6 requests within 46 ms
#   Retry-After: in 5 s    -> 6 requests within 20 ms
#   no Retry-After         -> 6 requests within 9 ms
#
# Exits with 0 while this is so, and with 1 once the behaviour has changed.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes >/dev/null
npm install --silent --no-audit --no-fund replicate@1.4.0
cat >run.mjs <<'SCRIPT'
import { once } from "node:events";
import { createServer } from "node:http";
import Replicate from "replicate";

async function requestsAfter(name, headers) {
  const times = [];
  const server = createServer((_request, response) => {
    times.push(performance.now());
    response.writeHead(429, headers).end("{}");
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const client = new Replicate({ auth: "token", baseUrl: `http://127.0.0.1:${server.address().port}` });
  await client.models.list().catch(() => {});
  server.close();
  server.closeAllConnections();
  const withinMs = Math.round(times.at(-1) - times[0]);
  console.log(`${name.padEnd(22)} -> ${times.length} requests within ${withinMs} ms`);
  return times.length === 6 && withinMs < 1_000;
}

const date = new Date(Date.now() + 5_000).toUTCString();
const areAsDescribed = [
  await requestsAfter("Retry-After: 2", { "retry-after": "2" }),
  await requestsAfter("Retry-After: in 5 s", { "retry-after": date }),
  await requestsAfter("no Retry-After", {}),
];
process.exit(areAsDescribed.every(Boolean) ? 0 : 1);
SCRIPT
node run.mjs
