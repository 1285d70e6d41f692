#!/usr/bin/env bash
# iso8601-duration 2.1.4 reads a signed duration without its sign, and without an error. "-PT15M", with which a calendar
# file (RFC 5545) says "15 minutes before", becomes 15 minutes after. luxon and Temporal keep the sign.
#
# Output seen on 30 November 2026 with Node 20.20.2, iso8601-duration 2.1.4, luxon 3.7.2, temporal-polyfill 1.0.8:
#   -PT15M iso8601-duration 900 s, luxon -900 s, Temporal -900 s
#   -P1W   iso8601-duration 604800 s, luxon -604800 s, Temporal -604800 s
#
# Exits with 0 while this is so, and with 1 once the behaviour has changed.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes >/dev/null
npm install --silent --no-audit --no-fund iso8601-duration@2.1.4 luxon@3.7.2 temporal-polyfill@1.0.8
cat >run.mjs <<'SCRIPT'
import { parse, toSeconds } from "iso8601-duration";
import { Duration } from "luxon";
import { Temporal } from "temporal-polyfill";

let isAsDescribed = true;
for (const text of ["-PT15M", "-P1W"]) {
  const loose = toSeconds(parse(text));
  const ofLuxon = Duration.fromISO(text).as("seconds");
  const ofTemporal = Temporal.Duration.from(text).total({ unit: "second", relativeTo: "2026-11-30" });
  console.log(`${text.padEnd(6)} iso8601-duration ${loose} s, luxon ${ofLuxon} s, Temporal ${ofTemporal} s`);
  isAsDescribed &&= loose > 0 && ofLuxon === -loose && ofTemporal === -loose;
}
process.exit(isAsDescribed ? 0 : 1);
SCRIPT
node run.mjs
