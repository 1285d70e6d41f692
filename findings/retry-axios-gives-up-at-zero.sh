#!/usr/bin/env bash
# retry-axios 4.0.3 gives up if Retry-After is 0 or a date that has passed, although both say that a request may be sent
# at once. So a refusal that is over by the time it arrives ends the call, and one that lasts longer does not. Its other
# waits, without Retry-After, are not affected.
#
# Output seen on 30 November 2026 with Node 20.20.2, axios 1.21.1, retry-axios 4.0.3:
#   Retry-After: 0              -> status 429 after 1 request
#   Retry-After: 10 seconds ago -> status 429 after 1 request
#   Retry-After: 1              -> status 200 after 2 requests
#   no Retry-After              -> status 200 after 2 requests
#
# Exits with 0 while this is so, and with 1 once the behaviour has changed.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes >/dev/null
npm install --silent --no-audit --no-fund axios@1.21.1 retry-axios@4.0.3
cat >run.mjs <<'SCRIPT'
import { once } from "node:events";
import { createServer } from "node:http";
import axios from "axios";
import { attach } from "retry-axios";

async function requestsAfter(name, headers) {
  let requests = 0;
  const server = createServer((_request, response) => {
    requests += 1;
    response.writeHead(requests === 1 ? 429 : 200, requests === 1 ? headers : {}).end("{}");
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const client = axios.create();
  client.defaults.raxConfig = { retry: 2, instance: client };
  attach(client);
  const { status } = await client
    .get(`http://127.0.0.1:${server.address().port}`)
    .catch((error) => error.response);
  server.close();
  server.closeAllConnections();
  console.log(`${name.padEnd(27)} -> status ${status} after ${requests} request${requests === 1 ? "" : "s"}`);
  return requests;
}

const ago = new Date(Date.now() - 10_000).toUTCString();
const requests = [
  await requestsAfter("Retry-After: 0", { "retry-after": "0" }),
  await requestsAfter("Retry-After: 10 seconds ago", { "retry-after": ago }),
  await requestsAfter("Retry-After: 1", { "retry-after": "1" }),
  await requestsAfter("no Retry-After", {}),
];
process.exit(requests.join() === "1,1,2,2" ? 0 : 1);
SCRIPT
node run.mjs
