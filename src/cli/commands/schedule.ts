/** `schedule preview`: shows when the runs of a cron expression are due. */
import type { Command } from "commander";
import { InvalidOptionError } from "../../core/errors.ts";
import { readCronText, usesHash } from "../../core/input/cron-text.ts";
import { isTimeZone } from "../../core/limits/calendar-days.ts";
import { cronFault, nextCronTimes, UTC } from "../../queue/bullmq/cron.ts";
import { onOneLine, print, table, type Io } from "../io.ts";
import { countOf } from "../options.ts";

export function addSchedule(program: Command, io: Io): void {
  program
    .command("schedule")
    .description("shows when recurring jobs are due")
    .addHelpText("after", '\nExample: sluice schedule preview "0 9 * * 1-5"')
    .command("preview <cron>")
    .description("prints the next runs of a cron expression; needs no Redis")
    .option("--tz <zone>", "the time zone of the expression", UTC)
    .option("--id <dedupeId>", "the id of the schedule; needed if the expression has H")
    .option("--count <runs>", "the number of runs", "5")
    .addHelpText(
      "after",
      '\nExample: sluice schedule preview "H 9 * * 1-5" --tz Europe/Berlin --id report',
    )
    .action((cron: string, given: PreviewGiven, command: Command) => {
      print(command, io, readPreview(cron, given), describePreview);
    });
}

interface PreviewGiven {
  readonly tz: string;
  readonly id?: string;
  readonly count: string;
}

interface SchedulePreview {
  readonly cron: string;
  /** The cron expression in numbers: names such as `MON`, and the hash `H`, are replaced. */
  readonly readAs: string;
  readonly timeZone: string;
  readonly nextRunsAtMs: readonly number[];
}

const MOST_RUNS = 100;

/**
 * @throws {@link InvalidOptionError} when the expression, its time zone or the count is invalid.
 */
function readPreview(
  cron: string,
  { tz: timeZone, id, count: countText }: PreviewGiven,
): SchedulePreview {
  const wrong = (option: string, value: string | undefined, remedy: string): InvalidOptionError =>
    new InvalidOptionError({ where: "sluice schedule preview", option, value, remedy });
  if (!isTimeZone(timeZone)) {
    throw wrong("--tz", timeZone, 'give the name of a time zone, such as "Europe/Berlin"');
  }
  if (id === undefined && usesHash(cron)) {
    throw wrong("--id", id, "give the dedupeId of the schedule: H is a hash of it");
  }
  const count = countOf("--count", countText);
  if (count > MOST_RUNS) throw wrong("--count", countText, `give ${MOST_RUNS} at most`);
  const fault = cronFault({ cron, timeZone, id: id ?? "" });
  if (fault !== undefined) throw wrong("cron", cron, fault);
  const readAs = readCronText(cron, id ?? "");
  const nextRunsAtMs = nextCronTimes(Date.now(), { cron: readAs, timeZone }, count);
  return { cron, readAs, timeZone, nextRunsAtMs };
}

function describePreview({ cron, readAs, timeZone, nextRunsAtMs }: SchedulePreview): string {
  const local = new Intl.DateTimeFormat("en-GB", {
    timeZone,
    weekday: "short",
    year: "numeric",
    month: "short",
    day: "2-digit",
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
    timeZoneName: "longOffset",
  });
  return [
    onOneLine(
      readAs === cron ? `${cron} in ${timeZone}` : `${cron} in ${timeZone}, read as ${readAs}`,
    ),
    table(
      ["local time", "utc"],
      nextRunsAtMs.map((ms) => [local.format(ms), new Date(ms).toISOString()]),
    ),
  ].join("\n");
}
