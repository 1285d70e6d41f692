/** `buckets`, `bucket`, `why`, `changes`, `replicas` and `top`: commands that change nothing. */
import { setTimeout as pause } from "node:timers/promises";
import type { Command } from "commander";
import { sayEndless } from "../../core/describe.ts";
import { InvalidOptionError } from "../../core/errors.ts";
import type { ChangeFacts, QueueChange } from "../../core/stores/insight/steering.ts";
import type { LoggedChange, Overview } from "../../insight/overview.ts";
import type { Sluice } from "../../sluice/create-sluice.ts";
import type { BucketChange } from "../../throttle/bucket/facts/changes.ts";
import type { BucketStatus } from "../../throttle/bucket/facts/status.ts";
import { countOf } from "../given.ts";
import { jobsWaitingFor, type WaitingJobs } from "../preview.ts";
import { byText, whyText } from "./queues.ts";
import {
  duration,
  findBucket,
  findJob,
  globalsOf,
  onOneLine,
  perSecond,
  print,
  table,
  withSluice,
  type Io,
} from "../io.ts";

export function addLooks(program: Command, io: Io): void {
  program
    .command("buckets")
    .description("all buckets: cap, actual rate, what waits and for what")
    .addHelpText("after", "\nExample: sluice buckets --json | jq '.buckets[].name'")
    .action(async (_options: object, command: Command) => {
      await withSluice(command, io, async (sluice) => {
        print(command, io, await allOf(sluice), describeAll);
      });
    });
  program
    .command("bucket <name>")
    .description("one bucket: its limits, what waits, who set what is in force")
    .addHelpText("after", "\nExample: sluice bucket stripe")
    .action(async (name: string, _options: object, command: Command) => {
      await withSluice(command, io, async (sluice) => {
        const status = await (await findBucket(sluice, name, "sluice queue NAME")).status();
        print(
          command,
          io,
          sayEndless({ ...status, jobs: await jobsWaitingFor(sluice, name) }),
          describeBucket,
        );
      });
    });
  program
    .command("why <name> [job]")
    .description(
      "why calls of a bucket wait, since when, and who set that; or why a job of a queue does",
    )
    .addHelpText("after", "\nExample: sluice why stripe\nExample: sluice why charges order-17")
    .action(async (name: string, job: string | undefined, _options: object, command: Command) => {
      await withSluice(command, io, async (sluice) => {
        if (job !== undefined) {
          const found = await findJob(sluice, name, job);
          const [why, eta] = await Promise.all([found.explain(), found.eta()]);
          print(command, io, { queue: name, job, why: why ?? null, eta: eta ?? null }, () =>
            whyText(why, eta),
          );
          return;
        }
        const status = await (
          await findBucket(sluice, name, "sluice queue NAME, or sluice why NAME JOB")
        ).status();
        const jobs = await jobsWaitingFor(sluice, name);
        print(
          command,
          io,
          { bucket: name, reasons: reasonsOf(status, jobs), jobs },
          ({ reasons }) => reasons.join("\n"),
        );
      });
    });
  program
    .command("changes [name]")
    .description("what was changed by hand, by whom and why; the newest first, of all or of one")
    .option("--queue", "the name is that of a queue, or of a sender of webhooks, and no bucket's")
    .option("--limit <count>", "how many at most", "20")
    .addHelpText(
      "after",
      "\nExample: sluice changes stripe --limit 5\nExample: sluice changes charges --queue",
    )
    .action(async (name: string | undefined, options: ChangesGiven, command: Command) => {
      const { queue, limit } = options;
      if (queue === true && name === undefined) {
        const remedy = "name the queue, or leave --queue out for all changes";
        throw new InvalidOptionError({
          where: "sluice changes",
          option: "name",
          value: name,
          remedy,
        });
      }
      const of = queue === true ? { queue: name } : { bucket: name };
      await withSluice(command, io, async (sluice) => {
        const found = await sluice.changes({ ...of, limit: countOf("--limit", limit) } as object);
        print(command, io, found, describeChanges);
      });
    });
  program
    .command("replicas")
    .description("the processes that use buckets")
    .addHelpText("after", "\nExample: sluice replicas")
    .action(async (_options: object, command: Command) => {
      await withSluice(command, io, async (sluice) => {
        const { replicas } = await sluice.overview({ limit: 1 });
        print(command, io, replicas, describeReplicas);
      });
    });
  program
    .command("top")
    .description("all buckets, again each second; the busiest line first")
    .option("--every <ms>", "how often, in ms", "1000")
    .option("--count <times>", "how often at all; without it, until it is interrupted")
    .addHelpText("after", "\nExample: sluice top --every 2000")
    .action(async ({ every, count }: { every: string; count?: string }, command: Command) => {
      const everyMs = countOf("--every", every);
      const isTerminal = io.isTty && globalsOf(command, io).json !== true;
      const times = count === undefined ? Infinity : countOf("--count", count);
      await withSluice(command, io, async (sluice) => {
        for (let time = 0; time < times; time++) {
          if (time > 0) await pause(everyMs);
          const all = await allOf(sluice);
          // Clears the terminal, and begins at its top.
          if (isTerminal) io.out("\u001B[2J\u001B[H");
          const buckets = all.buckets.toSorted((a, b) => b.waiting.total - a.waiting.total);
          print(command, io, { ...all, buckets }, describeAll);
        }
      });
    });
}

const MOST_AT_ONCE = 1_000;
/** Jobs are counted for this many buckets at most: each queue costs a forecast. */
const MOST_WITH_JOBS = 20;

type AllBuckets = Pick<Overview, "buckets" | "unreachable" | "replicas"> & {
  /** By bucket: the jobs that wait for it; of those whose calls are jobs. */
  readonly jobs: Readonly<Record<string, readonly WaitingJobs[]>>;
};

/** All pages. */
async function allOf(sluice: Sluice): Promise<AllBuckets> {
  const first = await sluice.overview({ limit: MOST_AT_ONCE });
  const buckets = [...first.buckets];
  const unreachable = [...first.unreachable];
  for (let after = first.next; after !== undefined;) {
    const page = await sluice.overview({ limit: MOST_AT_ONCE, after });
    buckets.push(...page.buckets);
    unreachable.push(...page.unreachable);
    after = page.next;
  }
  const ofQueues = new Set(first.queues.map(({ bucket }) => bucket));
  const behind = [...ofQueues].slice(0, MOST_WITH_JOBS);
  const jobs = await Promise.all(
    behind.map(async (name) => [name, await jobsWaitingFor(sluice, name)] as const),
  );
  return { buckets, unreachable, replicas: first.replicas, jobs: Object.fromEntries(jobs) };
}

function describeAll({ buckets, unreachable, replicas, jobs }: AllBuckets): string {
  const rows = buckets.map((status) => [
    status.name,
    perSecond(status.capPerSecond),
    status.hasCalls ? perSecond(status.actualPerSecond) : "no calls yet",
    `${status.waiting.total}${jobsText(jobs[status.name])}`,
    status.waiting.total === 0 ? "-" : duration(status.waiting.oldestMs),
    status.limitedBy ?? jobs[status.name]?.[0]?.why?.limit ?? "-",
    sourceText(status),
  ]);
  const heads = [
    "bucket",
    "cap/s",
    "actual/s",
    "waiting",
    "jobs",
    "oldest",
    "limited by",
    "set by",
  ];
  const lacks = unreachable.map(
    ({ bucket, reason }) => `Not seen: ${bucket ?? "a server"}: ${reason}`,
  );
  return [
    buckets.length === 0 ? "No process has told of a bucket." : table(heads, rows),
    `${replicas.length} ${replicas.length === 1 ? "replica" : "replicas"}`,
    ...lacks.map(onOneLine),
  ].join("\n");
}

/** Beside the calls that wait, the jobs of queues that do: `", 49 jobs"`. */
function jobsText(jobs: readonly WaitingJobs[] = []): string {
  const count = jobs.reduce((total, { waiting }) => total + waiting, 0);
  return count === 0 ? "" : `, ${count} ${count === 1 ? "job" : "jobs"}`;
}

function describeBucket({
  jobs,
  ...status
}: BucketStatus & { readonly jobs: readonly WaitingJobs[] }): string {
  const { limits, waiting, toldBy } = status;
  const facts = [
    ["policy", `${status.policy} (${setByText(status)})`],
    ["cap", status.capPerSecond === undefined ? "-" : `${perSecond(status.capPerSecond)}/s`],
    [
      "actual",
      status.hasCalls
        ? `${perSecond(status.actualPerSecond)}/s over the last 10 s`
        : "no calls yet",
    ],
    ["waiting", `${waiting.total}${waiting.total === 0 ? "" : `, ${byPriority(status)}`}`],
    ["generation", String(status.generation)],
  ];
  const rows = limits.map((limit) => [
    limit.name,
    String(limit.level),
    String(limit.capacity),
    limit.nextFreeMs === undefined ? "unknown" : duration(limit.nextFreeMs),
  ]);
  const replicas = toldBy.map((told) => [
    told.replica,
    perSecond(told.perSecond),
    String(told.waiting),
    `${duration(told.toldAgoMs)} ago`,
  ]);
  return [
    ...facts.map(([name, value]) => onOneLine(`${`${name}:`.padEnd(12)}${value}`)),
    ...reasonsOf(status, jobs),
    ...(rows.length === 0 ? [] : ["", table(["limit", "used", "of", "next in"], rows)]),
    ...describeShadows(status),
    ...(replicas.length === 0
      ? []
      : ["", table(["replica", "calls/s", "waiting", "told"], replicas)]),
  ].join("\n");
}

/** What limits would have done that only count. */
function describeShadows({ shadows }: BucketStatus): string[] {
  if (shadows.length === 0) return [];
  const rows = shadows.map((shadow) => [
    shadow.name,
    String(shadow.calls),
    String(shadow.wouldHaveWaited),
    shadow.wouldHaveWaited === 0 ? "-" : duration(shadow.longestWaitMs),
    String(shadow.wouldHaveBeenRefused),
  ]);
  return ["", table(["in shadow", "calls", "would wait", "longest", "would be refused"], rows)];
}

function byPriority({ waiting }: BucketStatus): string {
  return Object.entries(waiting.byPriority)
    .filter(([, count]) => count > 0)
    .map(([priority, count]) => `${count} ${priority}`)
    .join(", ");
}

function sourceText({ source, rulesVersion, setBy }: BucketStatus): string {
  if (source === "override") return `override by ${setBy?.by ?? "?"}`;
  return source === "rules" ? `rules, version ${rulesVersion ?? "unknown"}` : "code";
}

function setByText(status: BucketStatus): string {
  const { source, setBy } = status;
  if (source !== "override") return sourceText(status);
  return setBy === undefined ? "override, it is not known whose" : `override ${byText(setBy)}`;
}

/** What holds calls back, the strongest first. */
function reasonsOf(status: BucketStatus, jobs: readonly WaitingJobs[]): string[] {
  const { pausedForMs, pausedBy, coolingForMs, awayForMs, rateFactor, waiting } = status;
  const reasons: string[] = [];
  if (pausedForMs > 0) {
    const by = pausedBy === undefined ? "it is not known by whom" : byText(pausedBy);
    reasons.push(`The bucket is paused for ${duration(pausedForMs)}: ${by}.`);
  }
  if (coolingForMs > 0) {
    reasons.push(`The downstream refused calls: nothing starts for ${duration(coolingForMs)}.`);
  }
  if (awayForMs > 0) {
    reasons.push(`The downstream is away: the next job tries in ${duration(awayForMs)}.`);
  }
  if (rateFactor < 1) {
    reasons.push(`After a refusal, ${Math.round(rateFactor * 100)} % of the rate is in force.`);
  }
  if (waiting.total === 0 && jobs.length === 0) reasons.push("Nothing waits.");
  else if (waiting.total === 0) reasons.push("No call waits.");
  else if (status.limitedBy !== undefined && pausedForMs === 0 && coolingForMs === 0) {
    reasons.push(
      `${waiting.total} wait for ${status.limitedBy} (${setByText(status)}), the oldest for ${duration(waiting.oldestMs)}.`,
    );
  } else reasons.push(`${waiting.total} wait, the oldest for ${duration(waiting.oldestMs)}.`);
  for (const { queue, waiting: count, why } of jobs) {
    const reason = why === undefined ? "" : `; the oldest: ${whyText(why)}`;
    reasons.push(
      `${count} ${count === 1 ? "job" : "jobs"} of queue ${queue} wait for it${reason}.`,
    );
  }
  return reasons.map(onOneLine);
}

interface ChangesGiven {
  readonly queue?: boolean;
  readonly limit: string;
}

function describeChanges(changes: readonly LoggedChange[]): string {
  if (changes.length === 0) return "Nothing was changed by hand.";
  const rows = changes.map((change) => [
    change.id,
    new Date(change.atMs).toISOString(),
    change.bucket ?? endpointText(change),
    change.action,
    change.by,
    change.bucket === undefined ? factsText(change) : effectOf(change),
    change.reason ?? "-",
  ]);
  return table(["id", "at", "of", "action", "by", "what", "reason"], rows);
}

/** `charges`, or `webhooks: acme/billing`. */
function endpointText({ queue, endpoint }: QueueChange): string {
  return endpoint === undefined ? queue : `${queue}: ${endpoint.tenant}/${endpoint.id ?? "*"}`;
}

/** What a change of a queue or an endpoint did: of facts, those that are others now. */
function factsText(change: QueueChange): string {
  const { key, filter, jobs, before, after, forMs, failed, undoneBy } = change;
  const names = Object.keys({ ...before, ...after });
  const others = names.filter((name) => before?.[name] !== after?.[name]);
  const changed = others.map((name) => `${name} ${said(name, before)} -> ${said(name, after)}`);
  const about = { ...(key !== undefined && { key }), ...filter };
  const parts = [
    ...(jobs === undefined ? [] : [`${jobs} ${jobs === 1 ? "job" : "jobs"}`]),
    ...(Object.keys(about).length === 0 ? [] : [`of ${JSON.stringify(about)}`]),
    ...(changed.length === 0 ? [] : [changed.join(", ")]),
    ...(forMs === undefined ? [] : [`for ${duration(forMs)}`]),
    ...(failed === undefined ? [] : ["(failed)"]),
    ...(undoneBy === undefined ? [] : ["(undone)"]),
  ];
  return parts.length === 0 ? "-" : parts.join(" ");
}

function said(name: string, facts: ChangeFacts | undefined): string {
  const value = facts?.[name];
  if (value === undefined) return "-";
  return name.endsWith("Ms") && typeof value === "number" ? duration(value) : String(value);
}

function effectOf(change: BucketChange): string {
  const { subject, before, after, key, keys, forMs, failed, undoneBy } = change;
  const whose = key ?? keys;
  const about = whose === undefined ? "" : ` of ${JSON.stringify(whose)}`;
  const pauses = [before, after].map(({ pausedForMs }) =>
    pausedForMs === 0 ? "running" : `paused ${duration(pausedForMs)}`,
  );
  const what = subject === "pause" ? pauses.join(" -> ") : `${before.policy} -> ${after.policy}`;
  const end = forMs === undefined ? "" : ` for ${duration(forMs)}`;
  const fate = failed === undefined ? (undoneBy === undefined ? "" : " (undone)") : " (failed)";
  return `${what}${about}${end}${fate}`;
}

function describeReplicas(replicas: Overview["replicas"]): string {
  if (replicas.length === 0) return "No process has told of itself in the last 90 seconds.";
  const rows = replicas.map((replica) => [
    replica.replica,
    replica.host,
    String(replica.pid),
    replica.version,
    new Date(replica.startedAtMs).toISOString(),
  ]);
  return table(["replica", "host", "pid", "version", "started"], rows);
}
