#!/usr/bin/env bash
# Retry-After is a number of seconds or a date. @discordjs/rest 2.6.3 obeys the first form alone: after a date it sends
# the request again at once. klaviyo-api 23.0.0 waits as if the header were missing, for less than a second. A proxy
# between these clients and their API may send a date.
#
# Output seen on 1 December 2026 with Node 20.20.2, for one 429 that a 200 follows:
#   discord, Retry-After: 2             -> sent again after 2.1 s
#   discord, Retry-After: a date in 4 s -> sent again after 0.0 s
#   klaviyo, Retry-After: 2             -> sent again after 2.4 s
#   klaviyo, Retry-After: a date in 4 s -> sent again after 0.3 s
#
# Exits with 0 while this is so, and with 1 once the behaviour has changed.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes >/dev/null
npm install --silent --no-audit --no-fund @discordjs/rest@2.6.3 klaviyo-api@23.0.0
cat >run.mjs <<'SCRIPT'
import { once } from "node:events";
import { createServer } from "node:http";
import { REST } from "@discordjs/rest";
import klaviyo from "klaviyo-api";

async function waitAfter(name, header, send) {
  const times = [];
  const server = createServer((_request, response) => {
    times.push(performance.now());
    const isFirst = times.length === 1;
    const headers = { "content-type": "application/json", ...(isFirst ? { "retry-after": header } : {}) };
    response.writeHead(isFirst ? 429 : 200, headers).end('{"data":[]}');
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  await send(`http://127.0.0.1:${server.address().port}`);
  server.close();
  server.closeAllConnections();
  const seconds = (times[1] - times[0]) / 1_000;
  console.log(`${name.padEnd(35)} -> sent again after ${seconds.toFixed(1)} s`);
  return seconds;
}

const askDiscord = (api) => new REST({ api }).setToken("token").get("/channels");
const askKlaviyo = (url) => {
  const profiles = new klaviyo.ProfilesApi(new klaviyo.ApiKeySession("pk_example"));
  profiles.basePath = url;
  return profiles.getProfiles();
};
const inFourSeconds = () => new Date(Date.now() + 4_000).toUTCString();
const waits = [
  await waitAfter("discord, Retry-After: 2", "2", askDiscord),
  await waitAfter("discord, Retry-After: a date in 4 s", inFourSeconds(), askDiscord),
  await waitAfter("klaviyo, Retry-After: 2", "2", askKlaviyo),
  await waitAfter("klaviyo, Retry-After: a date in 4 s", inFourSeconds(), askKlaviyo),
];
process.exit(waits[0] >= 1.9 && waits[1] < 1 && waits[2] >= 1.9 && waits[3] < 2.5 ? 0 : 1);
SCRIPT
node run.mjs
