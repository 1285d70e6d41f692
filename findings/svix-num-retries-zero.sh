#!/usr/bin/env bash
# svix 2.5.0: `new Svix(token, { numRetries: 0 })` makes two retries, as if the option had not been given.
# `retryScheduleInMs: []` turns retries off.
#
# Output seen on 28 November 2026 with Node 20.20.2, svix 2.5.0:
#   {} -> 3 requests
#   {"numRetries":0} -> 3 requests
#   {"numRetries":1} -> 2 requests
#   {"retryScheduleInMs":[]} -> 1 requests
#
# Exits with 0 while this is so, and with 1 once the behaviour has changed.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes >/dev/null
npm install --silent --no-audit --no-fund svix@2.5.0
cat >run.mjs <<'EOF'
import { createServer } from "node:http";
import { Svix } from "svix";

let requests = 0;
const server = createServer((_request, response) => {
  requests += 1;
  response.writeHead(500, { "content-type": "application/json" }).end("{}");
});
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
const serverUrl = `http://127.0.0.1:${server.address().port}`;

async function requestsWith(options) {
  requests = 0;
  await new Svix("token", { serverUrl, ...options }).application.list().catch(() => {});
  console.log(`${JSON.stringify(options)} -> ${requests} requests`);
  return requests;
}

const seen = [
  await requestsWith({}),
  await requestsWith({ numRetries: 0 }),
  await requestsWith({ numRetries: 1 }),
  await requestsWith({ retryScheduleInMs: [] }),
];
server.close();
process.exit(JSON.stringify(seen) === "[3,3,2,1]" ? 0 : 1);
EOF
node run.mjs
