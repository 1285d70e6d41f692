#!/usr/bin/env bash
# Two packages take the seconds of Retry-After for milliseconds: the REST client of @shopify/admin-api-client 2.0.0, and
# the proxy @fastify/reply-from 12.6.5, which repeats a GET after a 503 up to ten times. So after "Retry-After: 2" both
# are back within a few ms, and use up their retries long before the downstream can accept a call. Without the header,
# Shopify's client waits a second.
#
# Output seen on 1 December 2026 with Node 20.20.2, fastify 5.12.8:
#   shopify, 429, Retry-After: 2     -> sent again after 6 ms
#   shopify, 429, no Retry-After     -> sent again after 1003 ms
#   reply-from, 503, Retry-After: 2  -> sent again after 5 ms
#
# Exits with 0 while this is so, and with 1 once the behaviour has changed.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes >/dev/null
npm install --silent --no-audit --no-fund @shopify/admin-api-client@2.0.0 @fastify/reply-from@12.6.5 fastify@5.12.8
cat >run.mjs <<'SCRIPT'
import { once } from "node:events";
import { createServer } from "node:http";
import replyFrom from "@fastify/reply-from";
import { createAdminRestApiClient } from "@shopify/admin-api-client";
import fastify from "fastify";

async function waitAfter(name, status, headers, send) {
  const times = [];
  const server = createServer((_request, response) => {
    times.push(performance.now());
    response.writeHead(times.length === 1 ? status : 200, times.length === 1 ? headers : {}).end("{}");
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const url = `http://127.0.0.1:${server.address().port}`;
  await fetch(`${url}/warm-up`, { method: "HEAD" });
  times.length = 0;
  await send(url);
  server.close();
  server.closeAllConnections();
  const waitMs = Math.round(times[1] - times[0]);
  console.log(`${name.padEnd(32)} -> sent again after ${waitMs} ms`);
  return waitMs;
}

async function askShopify(url) {
  const client = createAdminRestApiClient({
    storeDomain: "example.myshopify.com",
    apiVersion: "2026-10",
    accessToken: "token",
    customFetchApi: (_url, init) => fetch(url, init),
    logger: () => {},
  });
  await client.get("products", { retries: 1 });
}

async function askProxy(url) {
  const proxy = fastify();
  proxy.register(replyFrom, { base: url });
  proxy.get("/", (_request, reply) => reply.from("/"));
  await proxy.inject("/");
  await proxy.close();
}

const seconds = { "retry-after": "2" };
const shopifyMs = await waitAfter("shopify, 429, Retry-After: 2", 429, seconds, askShopify);
const defaultMs = await waitAfter("shopify, 429, no Retry-After", 429, {}, askShopify);
const proxyMs = await waitAfter("reply-from, 503, Retry-After: 2", 503, seconds, askProxy);
process.exit(shopifyMs < 900 && defaultMs >= 990 && proxyMs < 900 ? 0 : 1);
SCRIPT
node run.mjs
