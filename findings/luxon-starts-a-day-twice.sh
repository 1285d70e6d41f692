#!/usr/bin/env bash
# Where clocks go back over midnight, a day has two midnights. luxon 3.7.2 answers startOf("day") with the midnight of
# the same UTC offset as the given time. So times of one day get two different starts, and calls that are counted by
# day get two counters. Temporal always takes the first midnight.
#
# Output seen on 30 November 2026 with Node 20.20.2, luxon 3.7.2, temporal-polyfill 1.0.8:
#   2026-11-01T00:30:00-04:00 in America/Havana: luxon 04:00Z, Temporal 04:00Z
#   2026-11-01T12:00:00-05:00 in America/Havana: luxon 05:00Z, Temporal 04:00Z
#   2026-10-25T00:30:00+00:00 in Atlantic/Azores: luxon 00:00Z, Temporal 00:00Z
#   2026-10-25T12:00:00-01:00 in Atlantic/Azores: luxon 01:00Z, Temporal 00:00Z
#
# Exits with 0 while this is so, and with 1 once the behaviour has changed.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes >/dev/null
npm install --silent --no-audit --no-fund luxon@3.7.2 temporal-polyfill@1.0.8
cat >run.mjs <<'SCRIPT'
import { DateTime } from "luxon";
import { Temporal } from "temporal-polyfill";

let isAsDescribed = true;
for (const [zone, early, late] of [
  ["America/Havana", "2026-11-01T00:30:00-04:00", "2026-11-01T12:00:00-05:00"],
  ["Atlantic/Azores", "2026-10-25T00:30:00+00:00", "2026-10-25T12:00:00-01:00"],
]) {
  const [ofEarly, ofLate] = [early, late].map((text) => {
    const byLuxon = DateTime.fromISO(text, { zone }).startOf("day").toMillis();
    const byTemporal = Temporal.Instant.from(text).toZonedDateTimeISO(zone).startOfDay().epochMilliseconds;
    const [luxon, temporal] = [byLuxon, byTemporal].map((ms) => new Date(ms).toISOString().slice(11, 16));
    console.log(`${text} in ${zone}: luxon ${luxon}Z, Temporal ${temporal}Z`);
    return { byLuxon, byTemporal };
  });
  isAsDescribed &&= ofLate.byLuxon - ofEarly.byLuxon === 3_600_000 && ofLate.byTemporal === ofEarly.byTemporal;
}
process.exit(isAsDescribed ? 0 : 1);
SCRIPT
node run.mjs
