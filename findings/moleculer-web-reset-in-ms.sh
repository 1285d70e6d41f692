#!/usr/bin/env bash
# moleculer-web 0.10.8 sends X-Rate-Limit-Reset in epoch milliseconds, and no Retry-After with its 429. Others of this
# name, such as X and Okta, send epoch seconds. ratelimit-header-parser 0.1.0 reads the value as a day in the year 58884.
#
# Output seen on 30 November 2026 with Node 20.20.2, moleculer 0.14.36, moleculer-web 0.10.8, parser 0.1.0:
#   status 429, retry-after null, reset in 19 s if read as ms, in the year 58884 for the parser
#
# Exits with 0 while this is so, and with 1 once the behaviour has changed.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes >/dev/null
npm install --silent --no-audit --no-fund moleculer@0.14.36 moleculer-web@0.10.8 ratelimit-header-parser@0.1.0
cat >run.mjs <<'SCRIPT'
import moleculer from "moleculer";
import ApiService from "moleculer-web";
import { parseRateLimit } from "ratelimit-header-parser";

const broker = new moleculer.ServiceBroker({ logger: false });
broker.createService({ name: "orders", actions: { list: () => "ok" } });
const settings = {
  port: 0,
  ip: "127.0.0.1",
  rateLimit: { window: 20_000, limit: 2, headers: true },
  routes: [{ path: "/", aliases: { "GET /": "orders.list" } }],
};
const api = broker.createService({ mixins: [ApiService], settings });
await broker.start();
let response;
for (let call = 0; call < 4; call += 1) {
  response = await fetch(`http://127.0.0.1:${api.server.address().port}/`);
}
await broker.stop();
const { status, headers } = response;
const inSeconds = Math.round((Number(headers.get("x-rate-limit-reset")) - Date.now()) / 1_000);
const year = parseRateLimit(headers)?.reset?.getUTCFullYear();
console.log(
  `status ${status}, retry-after ${headers.get("retry-after")}, reset in ${inSeconds} s if read as ms, in the year ${year} for the parser`,
);
process.exit(status === 429 && Math.abs(inSeconds) <= 20 && year > 50_000 ? 0 : 1);
SCRIPT
node run.mjs
