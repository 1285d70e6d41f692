#!/usr/bin/env bash
# Two cron libraries carry a day that a month does not have over into the next month, instead of skipping the month.
# @cheap-glitch/mi-cron 1.0.1 and aws-cron-parser 1.1.12 run a job for 29 February on 1 March. mi-cron also runs one for
# the 31st on 3 March and 1 May. cron-parser 5.10.6 skips months and years without such a day.
#
# Output seen on 30 November 2026 with Node 20.20.2:
#   0 0 29 2 *   cron-parser     2028-02-29 2032-02-29 2036-02-29
#   0 0 29 2 *   mi-cron         2026-03-01 2027-03-01 2028-02-29
#   0 0 29 2 ? * aws-cron-parser 2026-03-01 2027-03-01 2028-02-29
#   0 0 31 * *   cron-parser     2026-03-31 2026-05-31 2026-07-31
#   0 0 31 * *   mi-cron         2026-03-03 2026-03-31 2026-05-01
#
# Exits with 0 while this is so, and with 1 once the behaviour has changed.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes >/dev/null
npm install --silent --no-audit --no-fund @cheap-glitch/mi-cron@1.0.1 aws-cron-parser@1.1.12 cron-parser@5.10.6
cat >run.mjs <<'SCRIPT'
import { parseCron } from "@cheap-glitch/mi-cron";
import aws from "aws-cron-parser";
import { CronExpressionParser } from "cron-parser";

const nextOf = {
  "cron-parser": (text, after) =>
    CronExpressionParser.parse(text, { currentDate: after, tz: "UTC" }).next().toDate(),
  "mi-cron": (text, after) => parseCron.nextDate(text, after),
  "aws-cron-parser": (text, after) => aws.next(aws.parse(text), after),
};

function daysOf(library, text) {
  let date = new Date("2026-02-01T00:00:00Z");
  const days = [1, 2, 3].map(() => (date = nextOf[library](text, date)).toISOString().slice(0, 10)).join(" ");
  console.log(`${text.padEnd(12)} ${library.padEnd(15)} ${days}`);
  return days;
}

const days = [
  daysOf("cron-parser", "0 0 29 2 *"),
  daysOf("mi-cron", "0 0 29 2 *"),
  daysOf("aws-cron-parser", "0 0 29 2 ? *"),
  daysOf("cron-parser", "0 0 31 * *"),
  daysOf("mi-cron", "0 0 31 * *"),
];
const isAsDescribed = [days[1], days[2]].every((each) => each.startsWith("2026-03-01")) && days[3] !== days[4];
process.exit(isAsDescribed ? 0 : 1);
SCRIPT
TZ=UTC node run.mjs
