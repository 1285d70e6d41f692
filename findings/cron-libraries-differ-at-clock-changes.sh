#!/usr/bin/env bash
# croner 11.0.1 and cron-parser 5.10.6 disagree on the days on which clocks change. A daily run at 02:30, an hour that
# is skipped, starts at 03:00 in one and at 03:30 in the other. A run every two hours has no run between 00:00 and 04:00
# in croner in spring, and two runs at 02:00 in autumn; in cron-parser it has one in both.
#
# Output seen on 30 November 2026 with Node 20.20.2, for Europe/Berlin in 2026 (03-29 forward, 10-25 back):
#   30 2 * * *   croner 03-29 03:00, 03-30 02:30  cron-parser 03-29 03:30, 03-30 02:30
#   0 */2 * * *  croner 03-29 04:00, 03-29 06:00  cron-parser 03-29 03:00, 03-29 04:00
#   0 */2 * * *  croner 10-25 02:00, 10-25 02:00  cron-parser 10-25 02:00, 10-25 04:00
#
# Exits with 0 while this is so, and with 1 once the behaviour has changed.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes >/dev/null
npm install --silent --no-audit --no-fund croner@11.0.1 cron-parser@5.10.6
cat >run.mjs <<'SCRIPT'
import { Cron } from "croner";
import { CronExpressionParser } from "cron-parser";

const timeZone = "Europe/Berlin";
const clock = new Intl.DateTimeFormat("sv-SE", { timeZone, dateStyle: "short", timeStyle: "short" });
const textOf = (dates) => dates.map((date) => clock.format(date).slice(5)).join(", ");
let isAsDescribed = true;
for (const [text, from] of [
  ["30 2 * * *", "2026-03-29T00:00:00+01:00"],
  ["0 */2 * * *", "2026-03-29T00:30:00+01:00"],
  ["0 */2 * * *", "2026-10-25T00:30:00+02:00"],
]) {
  const after = new Date(from);
  const byCroner = textOf(new Cron(text, { timezone: timeZone, paused: true }).nextRuns(2, after));
  const schedule = CronExpressionParser.parse(text, { currentDate: after, tz: timeZone });
  const byParser = textOf([schedule.next().toDate(), schedule.next().toDate()]);
  console.log(`${text.padEnd(11)}  croner ${byCroner.padEnd(24)} cron-parser ${byParser}`);
  isAsDescribed &&= byCroner !== byParser;
}
process.exit(isAsDescribed ? 0 : 1);
SCRIPT
node run.mjs
