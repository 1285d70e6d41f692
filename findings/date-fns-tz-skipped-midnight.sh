#!/usr/bin/env bash
# Where clocks go forward at midnight, the day begins at 01:00. date-fns-tz 3.2.0 turns the missing 00:00 into 23:00 of
# the day before. Temporal and luxon answer 01:00. A daily budget that starts there begins an hour early, and that hour
# then counts for two days.
#
# Output seen on 30 November 2026 with Node 20.20.2, date-fns-tz 3.2.0, date-fns 4.4.0, temporal-polyfill 1.0.8:
#   Africa/Cairo     2026-04-24: date-fns-tz 2026-04-23 23:00, Temporal 2026-04-24 01:00
#   America/Santiago 2026-09-06: date-fns-tz 2026-09-05 23:00, Temporal 2026-09-06 01:00
#   Asia/Beirut      2026-03-29: date-fns-tz 2026-03-28 23:00, Temporal 2026-03-29 01:00
#
# Exits with 0 while this is so, and with 1 once the behaviour has changed.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes >/dev/null
npm install --silent --no-audit --no-fund date-fns@4.4.0 date-fns-tz@3.2.0 temporal-polyfill@1.0.8
cat >run.mjs <<'SCRIPT'
import { fromZonedTime } from "date-fns-tz";
import { Temporal } from "temporal-polyfill";

let isAsDescribed = true;
for (const [timeZone, day] of [
  ["Africa/Cairo", "2026-04-24"],
  ["America/Santiago", "2026-09-06"],
  ["Asia/Beirut", "2026-03-29"],
]) {
  const ofDateFns = fromZonedTime(`${day}T00:00:00`, timeZone).getTime();
  const ofTemporal = Temporal.PlainDate.from(day).toZonedDateTime(timeZone).epochMilliseconds;
  const [dateFns, temporal] = [ofDateFns, ofTemporal].map((ms) =>
    Temporal.Instant.fromEpochMilliseconds(ms).toZonedDateTimeISO(timeZone).toString().slice(0, 16).replace("T", " "),
  );
  console.log(`${timeZone.padEnd(16)} ${day}: date-fns-tz ${dateFns}, Temporal ${temporal}`);
  isAsDescribed &&= dateFns.endsWith("23:00") && temporal === `${day} 01:00`;
}
process.exit(isAsDescribed ? 0 : 1);
SCRIPT
node run.mjs
