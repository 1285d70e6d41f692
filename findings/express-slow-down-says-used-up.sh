#!/usr/bin/env bash
# express-slow-down 3.1.1 with `standardHeaders` tells each client that its quota is used up: a limit of 0, with 0
# remaining. Its responses of status 200 also carry Retry-After with the length of the window. Calls that are not slowed
# down get the same headers. A client that obeys them sends one call per window, although nothing refuses more.
#
# Output seen on 1 December 2026 with Node 20.20.2, express 5.3.0, for the first of five calls without a delay:
#   draft-6: status 200, ratelimit-limit: 0, ratelimit-remaining: 0, retry-after: 60
#   draft-7: status 200, ratelimit: limit=0, remaining=0, reset=60, retry-after: 60
#   draft-8: status 200, ratelimit: "0-in-1min"; r=0; t=60, retry-after: 60
#
# Exits with 0 while this is so, and with 1 once the behaviour has changed.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes >/dev/null
npm install --silent --no-audit --no-fund express@5.3.0 express-slow-down@3.1.1
cat >run.mjs <<'SCRIPT'
import { once } from "node:events";
import express from "express";
import { slowDown } from "express-slow-down";

let isAsDescribed = true;
for (const standardHeaders of ["draft-6", "draft-7", "draft-8"]) {
  const app = express();
  app.use(slowDown({ windowMs: 60_000, delayAfter: 5, delayMs: () => 100, standardHeaders }));
  app.get("/", (_request, response) => response.send("ok"));
  const server = app.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { status, headers } = await fetch(`http://127.0.0.1:${server.address().port}/`);
  server.close();
  const shown = ["ratelimit-limit", "ratelimit-remaining", "ratelimit", "retry-after"]
    .filter((name) => headers.has(name))
    .map((name) => `${name}: ${headers.get(name)}`)
    .join(", ");
  console.log(`${standardHeaders}: status ${status}, ${shown}`);
  const saysUsedUp = /\b(?:remaining: 0|remaining=0|r=0)\b/.test(shown);
  isAsDescribed &&= status === 200 && saysUsedUp && headers.get("retry-after") === "60";
}
process.exit(isAsDescribed ? 0 : 1);
SCRIPT
node run.mjs
