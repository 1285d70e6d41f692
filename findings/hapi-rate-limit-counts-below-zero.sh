#!/usr/bin/env bash
# hapi-rate-limit 8.0.0 answers a 429 without Retry-After. It counts refused calls too, so its header for the remaining
# calls is negative. Its reset time is in epoch milliseconds, and its names join quota and figure in one word. A reader
# that takes whole numbers from 0, or looks for X-RateLimit-Remaining, learns nothing from this response.
#
# Output seen on 30 November 2026 with Node 20.20.2, @hapi/hapi 21.4.10, hapi-rate-limit 8.0.0:
#   status 429, retry-after null, x-ratelimit-userremaining -1, reset in 19.6 s if read as ms
#
# Exits with 0 while this is so, and with 1 once the behaviour has changed.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes >/dev/null
npm install --silent --no-audit --no-fund @hapi/hapi@21.4.10 hapi-rate-limit@8.0.0
cat >run.mjs <<'SCRIPT'
import Hapi from "@hapi/hapi";
import plugin from "hapi-rate-limit";

const server = Hapi.server({ port: 0, host: "127.0.0.1" });
const options = { userLimit: 2, userCache: { expiresIn: 20_000 }, pathLimit: false };
await server.register({ plugin, options });
server.route({ method: "GET", path: "/", handler: () => "ok" });
await server.start();
let response;
for (let call = 0; call < 4; call += 1) response = await fetch(server.info.uri);
await server.stop();
const { status, headers } = response;
const [after, left, reset] = ["retry-after", "x-ratelimit-userremaining", "x-ratelimit-userreset"].map(
  (name) => headers.get(name),
);
const inSeconds = (Number(reset) - Date.now()) / 1_000;
console.log(
  `status ${status}, retry-after ${after}, x-ratelimit-userremaining ${left}, reset in ${inSeconds.toFixed(1)} s if read as ms`,
);
process.exit(status === 429 && after === null && Number(left) < 0 && Math.abs(inSeconds) < 60 ? 0 : 1);
SCRIPT
node run.mjs
