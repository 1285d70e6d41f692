#!/usr/bin/env bash
# cron-schedule 6.0.0 reads the leading number of a value and drops what follows, without an error. "1#1", the first
# Monday, becomes each Monday. "5L", the last Friday, becomes each Friday. "5/15" becomes minute 5 alone.
# cron-parser 5.10.6 reads all three as they are meant.
#
# Output seen on 30 November 2026 with Node 20.20.2, cron-schedule 6.0.0, cron-parser 5.10.6:
#   0 0 * * 1#1  cron-schedule 2026-12-07T00:00 2026-12-14T00:00  cron-parser 2026-12-07T00:00 2027-01-04T00:00
#   0 0 * * 5L   cron-schedule 2026-12-04T00:00 2026-12-11T00:00  cron-parser 2026-12-25T00:00 2027-01-29T00:00
#   5/15 * * * * cron-schedule 2026-12-01T00:05 2026-12-01T01:05  cron-parser 2026-12-01T00:05 2026-12-01T00:20
#
# Exits with 0 while this is so, and with 1 once the behaviour has changed.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes >/dev/null
npm install --silent --no-audit --no-fund cron-schedule@6.0.0 cron-parser@5.10.6
cat >run.mjs <<'SCRIPT'
import { CronExpressionParser } from "cron-parser";
import { parseCronExpression } from "cron-schedule";

const from = new Date("2026-12-01T00:00:00Z");
const textOf = (date) => date.toISOString().slice(0, 16);
let isAsDescribed = true;
for (const text of ["0 0 * * 1#1", "0 0 * * 5L", "5/15 * * * *"]) {
  const loose = parseCronExpression(text).getNextDates(2, from).map(textOf);
  const parsed = CronExpressionParser.parse(text, { currentDate: from, tz: "UTC" });
  const strict = [parsed.next(), parsed.next()].map((next) => textOf(next.toDate()));
  console.log(`${text.padEnd(12)} cron-schedule ${loose.join(" ")}  cron-parser ${strict.join(" ")}`);
  isAsDescribed &&= loose[1] !== strict[1];
}
process.exit(isAsDescribed ? 0 : 1);
SCRIPT
TZ=UTC node run.mjs
