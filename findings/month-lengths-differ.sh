#!/usr/bin/env bash
# Four libraries turn "a month" into four different times. luxon 3.7.2 takes 30 days, duration-fns 3.0.2 a twelfth of 365
# days, parse-duration 2.1.9 a twelfth of 365.25 days, and iso8601-duration 2.1.4 the month that begins at a date, which
# is now unless it is given. A budget "per month" that is computed this way drifts away from the calendar.
#
# Output seen on 30 November 2026 with Node 20.20.2:
#   luxon            30 days
#   duration-fns     30.416666666666668 days
#   parse-duration   30.4375 days
#   iso8601-duration 31 days from 1 January, 28 days from 1 February
#
# Exits with 0 while this is so, and with 1 once the behaviour has changed.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes >/dev/null
npm install --silent --no-audit --no-fund luxon@3.7.2 duration-fns@3.0.2 parse-duration@2.1.9 iso8601-duration@2.1.4
cat >run.mjs <<'SCRIPT'
import * as durations from "duration-fns";
import { parse, toSeconds } from "iso8601-duration";
import { Duration } from "luxon";
import parseDuration from "parse-duration";

const monthFrom = (date) => toSeconds(parse("P1M"), new Date(date)) / 86_400;
const days = [
  Duration.fromISO("P1M").as("days"),
  durations.toDays("P1M"),
  parseDuration("1 month") / 86_400_000,
  monthFrom("2026-01-01T00:00:00Z"),
  monthFrom("2026-02-01T00:00:00Z"),
];
console.log(`luxon            ${days[0]} days`);
console.log(`duration-fns     ${days[1]} days`);
console.log(`parse-duration   ${days[2]} days`);
console.log(`iso8601-duration ${days[3]} days from 1 January, ${days[4]} days from 1 February`);
process.exit(new Set(days).size === 5 ? 0 : 1);
SCRIPT
TZ=UTC node run.mjs
