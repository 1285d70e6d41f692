#!/usr/bin/env bash
# Three HTTP clients repeat a request after a 429 without reading Retry-After: ofetch 1.5.1 by default and superagent
# 10.4.2 with `retry()` at once, gaxios 7.3.1 with `retryConfig` after about 0.1 s. So they use up their retries before
# the downstream can accept a request.
#
# Output seen on 30 November 2026 with Node 20.20.2, for a downstream that asks for 2 s:
#   ofetch      429 after 2 requests in 21 ms
#   superagent  429 after 3 requests in 9 ms
#   gaxios      429 after 3 requests in 652 ms
#
# Exits with 0 while this is so, and with 1 once the behaviour has changed.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes >/dev/null
npm install --silent --no-audit --no-fund ofetch@1.5.1 superagent@10.4.2 gaxios@7.3.1
cat >run.mjs <<'SCRIPT'
import { once } from "node:events";
import { createServer } from "node:http";
import { request as gaxios } from "gaxios";
import { ofetch } from "ofetch";
import superagent from "superagent";

async function statusAfter(name, call) {
  const atMs = [];
  const server = createServer((_request, response) => {
    atMs.push(performance.now());
    const isRefused = performance.now() < atMs[0] + 2_000;
    response.writeHead(isRefused ? 429 : 200, { "content-type": "application/json", "retry-after": "2" });
    response.end("{}");
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const status = await call(`http://127.0.0.1:${server.address().port}`).then(
    () => 200,
    (error) => error.status ?? error.response?.status,
  );
  server.close();
  const tookMs = Math.round(atMs.at(-1) - atMs[0]);
  console.log(`${name.padEnd(10)}  ${status} after ${atMs.length} requests in ${tookMs} ms`);
  return status === 429 && atMs.length > 1;
}

const areAsDescribed = [
  await statusAfter("ofetch", (url) => ofetch(url)),
  await statusAfter("superagent", (url) => superagent.get(url).retry(2)),
  await statusAfter("gaxios", (url) => gaxios({ url, retryConfig: { retry: 2 } })),
];
process.exit(areAsDescribed.every(Boolean) ? 0 : 1);
SCRIPT
node run.mjs
