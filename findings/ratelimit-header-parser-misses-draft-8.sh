#!/usr/bin/env bash
# ratelimit-header-parser 0.1.0 returns NaN for each number in the headers that express-rate-limit 8.7.5 sends with
# `standardHeaders: "draft-8"`, although the same authors publish both. It throws no error, so a caller sees neither a
# limit nor a failure. The headers of draft 7 are read.
#
# Output seen on 30 November 2026 with Node 20.20.2, express 5.3.0, express-rate-limit 8.7.5, parser 0.1.0:
#   draft-7: limit=2, remaining=1, reset=60 -> limit 2, remaining 1
#   draft-8: "2-in-1min"; r=1; t=60 -> limit NaN, remaining NaN
#
# Exits with 0 while this is so, and with 1 once the behaviour has changed.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes >/dev/null
npm install --silent --no-audit --no-fund express@5.3.0 express-rate-limit@8.7.5 ratelimit-header-parser@0.1.0
cat >run.mjs <<'SCRIPT'
import { once } from "node:events";
import express from "express";
import { rateLimit } from "express-rate-limit";
import { parseRateLimit } from "ratelimit-header-parser";

const limits = [];
for (const standardHeaders of ["draft-7", "draft-8"]) {
  const app = express();
  app.use(rateLimit({ windowMs: 60_000, limit: 2, standardHeaders, legacyHeaders: false }));
  app.get("/", (_request, response) => response.send("ok"));
  const server = app.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { headers } = await fetch(`http://127.0.0.1:${server.address().port}/`);
  server.close();
  const read = parseRateLimit(headers);
  console.log(
    `${standardHeaders}: ${headers.get("ratelimit")} -> limit ${read?.limit}, remaining ${read?.remaining}`,
  );
  limits.push(read?.limit);
}
process.exit(limits[0] === 2 && Number.isNaN(limits[1]) ? 0 : 1);
SCRIPT
node run.mjs
