#!/usr/bin/env bash
# @datasert/cronjs-matcher 1.4.0 leaves out runs. "5#5", the fifth Friday, never falls on the 31st. Of an hour that
# clocks repeat, only the first pass has runs, so an hourly schedule pauses for two hours. On a day whose hour 2 is
# skipped, a daily schedule at 02:00 has no run at all. cron-parser 5.10.6 has a run in all three cases.
#
# Output seen on 30 November 2026 with Node 20.20.2, @datasert/cronjs-matcher 1.4.0, cron-parser 5.10.6:
#   0 0 * * 5#5 from 2026-06-01T00:00Z: cronjs 2026-10-30T00:00Z, cron-parser 2026-07-31T00:00Z
#   0 * * * *   from 2026-10-25T00:30Z: cronjs 2026-10-25T02:00Z, cron-parser 2026-10-25T01:00Z
#   0 2 * * *   from 2026-03-28T12:00Z: cronjs 2026-03-30T00:00Z, cron-parser 2026-03-29T01:00Z
#
# Exits with 0 while this is so, and with 1 once the behaviour has changed.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes >/dev/null
npm install --silent --no-audit --no-fund @datasert/cronjs-matcher@1.4.0 cron-parser@5.10.6
cat >run.mjs <<'SCRIPT'
import cronjs from "@datasert/cronjs-matcher";
import { CronExpressionParser } from "cron-parser";

const textOf = (date) => date.toISOString().replace(":00.000", "");
let isAsDescribed = true;
for (const [text, timezone, from] of [
  ["0 0 * * 5#5", "UTC", "2026-06-01T00:00:00Z"],
  ["0 * * * *", "Europe/Berlin", "2026-10-25T00:30:00Z"],
  ["0 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z"],
]) {
  const startAt = new Date(from);
  const [found] = cronjs.getFutureMatches(text, { startAt: from, matchCount: 1, timezone });
  const matched = new Date(found);
  const parsed = CronExpressionParser.parse(text, { currentDate: startAt, tz: timezone }).next().toDate();
  console.log(
    `${text.padEnd(11)} from ${textOf(startAt)}: cronjs ${textOf(matched)}, cron-parser ${textOf(parsed)}`,
  );
  isAsDescribed &&= matched > parsed;
}
process.exit(isAsDescribed ? 0 : 1);
SCRIPT
node run.mjs
