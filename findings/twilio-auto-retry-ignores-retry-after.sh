#!/usr/bin/env bash
# twilio 6.3.1 with `autoRetry: true` tries a 429 again without reading Retry-After. Its waits are random, up to
# about 200, 400 and 800 ms. So its three tries are over before a downstream that asks for 2 s can accept one.
#
# Output seen on 30 November 2026 with Node 20.20.2, twilio 6.3.1:
#   Retry-After: 2 -> status 429 after 4 requests, with waits of 203, 243, 338 ms
#
# Exits with 0 while this is so, and with 1 once the behaviour has changed.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes >/dev/null
npm install --silent --no-audit --no-fund twilio@6.3.1
cat >run.mjs <<'SCRIPT'
import { once } from "node:events";
import { createServer } from "node:http";
import twilio from "twilio";

const atMs = [];
const server = createServer((_request, response) => {
  atMs.push(performance.now());
  const isRefused = performance.now() < atMs[0] + 2_000;
  response.writeHead(isRefused ? 429 : 200, { "content-type": "application/json", "retry-after": "2" });
  response.end("{}");
}).listen(0, "127.0.0.1");
await once(server, "listening");
const client = twilio(`AC${"0".repeat(32)}`, "token", { autoRetry: true, maxRetries: 3 });
const uri = `http://127.0.0.1:${server.address().port}/2010-04-01/Accounts.json`;
const { statusCode } = await client.request({ method: "get", uri });
server.close();
const waits = atMs.slice(1).map((at, index) => Math.round(at - atMs[index]));
const requests = atMs.length;
console.log(`Retry-After: 2 -> status ${statusCode} after ${requests} requests, with waits of ${waits.join(", ")} ms`);
process.exit(statusCode === 429 && requests === 4 ? 0 : 1);
SCRIPT
node run.mjs
