#!/usr/bin/env bash
# airtable 0.12.2 tries a call again after a 429 without reading Retry-After. Its first wait is random, between 0 and
# 5 s, and the number of tries has no bound. Airtable's API asks for 30 s, so the first tries come too early.
#
# Output seen on 30 November 2026 with Node 20.20.2, airtable 0.12.2:
#   Retry-After: 30 -> found rec1 after waits of 4995, 1639, 16173 ms
#
# Exits with 0 while this is so, and with 1 once the behaviour has changed.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes >/dev/null
npm install --silent --no-audit --no-fund airtable@0.12.2
cat >run.mjs <<'SCRIPT'
import { once } from "node:events";
import { createServer } from "node:http";
import Airtable from "airtable";

const REFUSED = 3;
const atMs = [];
const server = createServer((_request, response) => {
  atMs.push(performance.now());
  const isRefused = atMs.length <= REFUSED;
  response.writeHead(isRefused ? 429 : 200, { "content-type": "application/json", "retry-after": "30" });
  response.end(isRefused ? '{"error":"TOO_MANY_REQUESTS"}' : '{"id":"rec1","fields":{}}');
}).listen(0, "127.0.0.1");
await once(server, "listening");
const endpointUrl = `http://127.0.0.1:${server.address().port}`;
const { id } = await new Airtable({ apiKey: "key", endpointUrl }).base("app")("orders").find("rec1");
server.close();
const waits = atMs.slice(1).map((at, index) => Math.round(at - atMs[index]));
console.log(`Retry-After: 30 -> found ${id} after waits of ${waits.join(", ")} ms`);
process.exit(waits.length === REFUSED && waits[0] < 10_000 ? 0 : 1);
SCRIPT
node run.mjs
