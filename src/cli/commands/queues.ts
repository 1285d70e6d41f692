/** `queues`, `queue`, `jobs`, `job` and `schedule`: what waits in queues, why, and what is planned. They change nothing. */
import type { Command } from "commander";
import { InvalidOptionError } from "../../core/errors.ts";
import { readCronText, usesHash } from "../../core/input/cron-text.ts";
import { isTimeZone } from "../../core/limits/calendar-days.ts";
import type { ListedQueue } from "../../insight/overview.ts";
import { cronFault, nextCronTimes, UTC } from "../../queue/bullmq/cron.ts";
import type { JobExplanation } from "../../queue/forecast/explain.ts";
import type { JobEta } from "../../queue/forecast/forecast.ts";
import type { QueueStatus } from "../../queue/forecast/status.ts";
import type { QueuedJob } from "../../queue/enqueue/job-handle.ts";
import type { JobState } from "../../queue/job.ts";
import type { Sluice } from "../../sluice/create-sluice.ts";
import type { SetBy } from "../../throttle/bucket/facts/status.ts";
import { countOf, KEY_OPTION, keyOf, type KeyGiven } from "../given.ts";
import {
  duration,
  findJob,
  findQueue,
  keyText,
  onOneLine,
  perSecond,
  print,
  table,
  withSluice,
  type Io,
} from "../io.ts";

export function addQueues(program: Command, io: Io): void {
  program
    .command("queues")
    .description("all queues: their bucket, their workers, and how many jobs these run")
    .addHelpText("after", "\nExample: sluice queues --json | jq '.[].name'")
    .action(async (_options: object, command: Command) => {
      await withSluice(command, io, async (sluice) => {
        print(command, io, await allQueues(sluice), describeQueues);
      });
    });
  program
    .command("queue <name>")
    .description("one queue: its jobs, the oldest that is due and why, when all are gone")
    .addHelpText("after", "\nExample: sluice queue charges")
    .action(async (name: string, _options: object, command: Command) => {
      await withSluice(command, io, async (sluice) => {
        print(command, io, await (await findQueue(sluice, name)).status(), describeQueue);
      });
    });
  program
    .command("jobs <queue>")
    .description("a page of the jobs of a queue, without their data unless that is asked for")
    .option("--state <state>", "waiting, active, delayed, done or failed")
    .option(...KEY_OPTION)
    .option("--limit <count>", "how many at most", "20")
    .option("--cursor <cursor>", "where the next page begins: the page before says it")
    .option("--data", "with the data of the jobs")
    .addHelpText("after", "\nExample: sluice jobs charges --state waiting --key acme --limit 5")
    .action(async (name: string, options: JobsGiven, command: Command) => {
      await withSluice(command, io, async (sluice) => {
        const queue = await findQueue(sluice, name);
        const { cursor } = options;
        const state = options.state as JobState | undefined;
        const limit = countOf("--limit", options.limit);
        const page = await queue.jobs({ ...keyOf(options), state, cursor, limit });
        const jobs = await Promise.all(page.jobs.map((job) => factsOf(job, options.data, state)));
        print(command, io, { jobs, cursor: page.cursor }, describeJobs);
      });
    });
  program
    .command("job <queue> <id>")
    .description("one job: where it is, what it waits for, and when it is expected to start")
    .option("--data", "with the data of the job")
    .addHelpText("after", "\nExample: sluice job charges order-17")
    .action(async (name: string, id: string, { data }: { data?: boolean }, command: Command) => {
      await withSluice(command, io, async (sluice) => {
        const job = await findJob(sluice, name, id);
        const [facts, why, eta] = await Promise.all([factsOf(job, data), job.explain(), job.eta()]);
        print(command, io, { ...facts, why, eta }, describeJob);
      });
    });
  program
    .command("schedule")
    .description("cron expressions of recurring jobs: when their runs are due")
    .addHelpText("after", '\nExample: sluice schedule preview "0 9 * * 1-5"')
    .command("preview <cron>")
    .description("prints the next runs of a cron expression; needs no Redis")
    .option("--tz <zone>", "the time zone of the expression", UTC)
    .option("--id <dedupeId>", "the id of the schedule; needed where the expression has H")
    .option("--count <runs>", "how many runs", "5")
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
  /** The expression without names and `H`. */
  readonly readAs: string;
  readonly timeZone: string;
  readonly nextRunsAtMs: readonly number[];
}

const MOST_RUNS = 100;

/** @throws {@link InvalidOptionError} when the expression, its zone or the count cannot be used. */
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

interface JobsGiven extends KeyGiven {
  readonly state?: string;
  readonly limit: string;
  readonly cursor?: string;
  readonly data?: boolean;
}

const MOST_AT_ONCE = 1_000;

/** All pages. */
async function allQueues(sluice: Sluice): Promise<readonly ListedQueue[]> {
  const queues: ListedQueue[] = [];
  for (let afterQueue: string | undefined, isFirst = true; isFirst || afterQueue !== undefined;) {
    isFirst = false;
    // Of buckets, as few as can be asked for.
    const page = await sluice.overview({ limit: MOST_AT_ONCE, brief: true, afterQueue });
    queues.push(...page.queues);
    afterQueue = page.nextQueue;
  }
  return queues;
}

function describeQueues(queues: readonly ListedQueue[]): string {
  if (queues.length === 0) return "No process has told of a queue.";
  const rows = queues.map(({ name, bucket, workers, places, running }) => [
    name,
    bucket,
    String(workers),
    `${running} of ${places}`,
  ]);
  return table(["queue", "bucket", "workers", "running"], rows);
}

function describeQueue(status: QueueStatus): string {
  const { jobs, oldest, unexplainedMs, goneInMs, reason, workers, places, workersWanted } = status;
  const { waiting, active, delayed, done, failed } = jobs;
  const facts = [
    ["waiting", `${waiting}, ${delayed} more later`],
    [
      "active",
      `${active} jobs, in ${places} places of ${workers} workers; enough workers: ${workersWanted}`,
    ],
    ["ended", `${done} done, ${failed} failed`],
    [
      "rate",
      `${perSecond(status.donePerSecond)} done and ${perSecond(status.failedPerSecond)} failed a second`,
    ],
    [
      "oldest",
      oldest === undefined
        ? "none is due"
        : `job ${oldest.id}, due for ${duration(oldest.waitingMs)}`,
    ],
    ["why", oldest === undefined ? "-" : whyText(oldest.why)],
    ["unexplained", unexplainedMs === 0 ? "nothing" : duration(unexplainedMs)],
    ["generation", String(status.generation)],
    ["gone in", goneInMs === undefined ? `not known: ${reason ?? "?"}` : duration(goneInMs)],
  ];
  const { settings, rulesVersion } = status;
  const rows = settings.map(({ name, value, setBy, override }) => [
    name,
    String(value),
    override !== undefined
      ? `override ${byText(override)}`
      : setBy === "rules"
        ? `rules, version ${rulesVersion ?? "unknown"}`
        : setBy,
  ]);
  return [
    ...facts.map(([name, value]) => onOneLine(`${`${name}:`.padEnd(13)}${value}`)),
    "",
    table(["setting", "value", "set by"], rows),
  ].join("\n");
}

/** Who set what is in force by hand, when and for how long. */
export function byText({ by, reason, atMs, endsInMs }: SetBy): string {
  const why = reason === undefined ? "" : `, "${reason}"`;
  const end = endsInMs === Infinity ? "until it is changed" : `for another ${duration(endsInMs)}`;
  return `by ${by}${why}, since ${new Date(atMs).toISOString()}, ${end}`;
}

/** Why a job waits, with its place in line and its expected start if others start before it. */
export function whyText(why: JobExplanation | undefined, eta?: JobEta): string {
  if (why === undefined) return "it runs, or has ended";
  const { waitsFor, limit, untilMs } = why;
  const what = limit === undefined ? waitsFor : `${waitsFor}: ${limit}`;
  // The next slot of the limit is not this job's.
  if (eta?.startsInMs !== undefined && eta.position > 0) {
    const others = eta.position === 1 ? "1 job starts" : `${eta.position} jobs start`;
    return `${what}; ${others} before it, which is expected to start in ${duration(eta.startsInMs)}`;
  }
  const end = untilMs === undefined || untilMs === Infinity ? "" : `, until ${timeText(untilMs)}`;
  return `${what}${end}`;
}

function timeText(ms: number | undefined): string {
  return ms === undefined ? "-" : new Date(ms).toISOString();
}

async function factsOf(job: QueuedJob<unknown>, withData?: boolean, state?: JobState) {
  const { id, name, key, priority, attemptsMade, attempts, data } = job;
  const { enqueuedAtMs, dueAtMs, startedAtMs, endedAtMs, startByMs } = job;
  const facts = { id, name, key, state: state ?? (await job.state()), priority };
  const times = { enqueuedAtMs, dueAtMs, startedAtMs, endedAtMs, startByMs };
  return { ...facts, attemptsMade, attempts, ...times, ...(withData === true ? { data } : {}) };
}

type JobFacts = Awaited<ReturnType<typeof factsOf>> & { readonly data?: unknown };

function describeJobs(page: { jobs: readonly JobFacts[]; cursor: string | undefined }): string {
  const { jobs, cursor } = page;
  const hasData = jobs.some((job) => "data" in job);
  const rows = jobs.map((job) => [
    job.id,
    job.state ?? "gone",
    keyText(job.key),
    job.priority,
    `${job.attemptsMade} of ${job.attempts}`,
    timeText(job.dueAtMs),
    ...(hasData ? [JSON.stringify(job.data)] : []),
  ]);
  const heads = ["id", "state", "key", "priority", "attempts", "due", ...(hasData ? ["data"] : [])];
  const more = cursor === undefined ? [] : [onOneLine(`More: --cursor '${cursor}'`)];
  const none = cursor === undefined ? "No job matches." : "None on this page.";
  return [jobs.length === 0 ? none : table(heads, rows), ...more].join("\n");
}

type JobLooked = JobFacts & {
  readonly why: JobExplanation | undefined;
  readonly eta: Awaited<ReturnType<QueuedJob<unknown>["eta"]>>;
};

function describeJob(job: JobLooked): string {
  const { eta, why } = job;
  const facts = [
    ["job", job.id],
    ["state", job.state ?? "gone"],
    ["key", keyText(job.key)],
    ["priority", job.priority],
    ["attempts", `${job.attemptsMade} of ${job.attempts}`],
    ["enqueued", timeText(job.enqueuedAtMs)],
    ["due", timeText(job.dueAtMs)],
    ["started", timeText(job.startedAtMs)],
    ["ended", timeText(job.endedAtMs)],
    ["waits for", whyText(why, eta)],
    [
      "starts in",
      eta === undefined
        ? "-"
        : (eta.reason ?? `${duration(eta.startsInMs)}, after ${eta.position} others`),
    ],
    ...("data" in job ? [["data", JSON.stringify(job.data)]] : []),
  ];
  return facts.map(([name, value]) => onOneLine(`${`${name}:`.padEnd(12)}${value}`)).join("\n");
}
