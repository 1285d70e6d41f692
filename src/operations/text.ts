/** Formats results for people. */
import type { Key } from "../core/key-path.ts";
import type { Overview } from "../insight/overview.ts";
import type { JobExplanation, WaitsFor } from "../queue/forecast/explain.ts";
import type { Forecast, JobEta, QueuePreview } from "../queue/forecast/forecast.ts";
import type { KeyTurn, MemberState } from "../throttle/bucket/bucket-state.ts";
import type { BudgetState } from "../throttle/bucket/budgets.ts";
import type { BucketOutlook, BucketPreview } from "../throttle/bucket/facts/preview.ts";
import type { BucketBrief, BucketStatus, SetBy } from "../throttle/bucket/facts/status.ts";
import type { WaitingJobs } from "./facts.ts";

interface ShownTable {
  readonly heads: readonly string[];
  readonly rows: readonly (readonly string[])[];
}

/** The output of a command: lines and tables. */
export type Shown = string | readonly (string | ShownTable)[];

/** Formats names and values, one pair per line: `"cap:        100/s"`. */
export function factLines(facts: readonly (readonly [string, string])[], width: number): string[] {
  return facts.map(([name, value]) => `${`${name}:`.padEnd(width)}${value}`);
}

/** Converts values that JSON does not have: a bigint to text, and a time without an end to `"forever"`. */
export function sayInJson(_name: string, value: unknown): unknown {
  if (typeof value === "bigint") return String(value);
  return value === Infinity ? "forever" : value;
}

/** Formats ms: `1500` becomes `"1.5 s"`. */
export function duration(ms: number): string {
  if (ms === Infinity) return "forever";
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  const units = [
    ["d", 86_400_000],
    ["h", 3_600_000],
    ["min", 60_000],
    ["s", 1_000],
  ] as const;
  const [unit, length] = units.find(([, unitMs]) => ms >= unitMs)!;
  return `${Number((ms / length).toFixed(1))} ${unit}`;
}

/** Formats a rate with at most two decimals. */
export function perSecond(rate: number | undefined): string {
  return rate === undefined ? "-" : String(Number(rate.toFixed(2)));
}

export function timeText(ms: number | undefined): string {
  return ms === undefined ? "-" : new Date(ms).toISOString();
}

/** Formats the key of a job. */
export function keyText(key: Key | undefined): string {
  return key === undefined ? "-" : typeof key === "string" ? key : JSON.stringify(key);
}

/** Formats a count with its noun: `"1 job"`, `"2 jobs"`. */
export function counted(count: number, one: string, many = `${one}s`): string {
  return `${count} ${count === 1 ? one : many}`;
}

/** Formats who set an override, when it was set and how long it lasts. */
export function byText({ by, reason, atMs, endsInMs }: SetBy): string {
  const why = reason === undefined ? "" : `, "${reason}"`;
  const end = endsInMs === Infinity ? "until it is changed" : `for another ${duration(endsInMs)}`;
  return `by ${by}${why}, since ${new Date(atMs).toISOString()}, ${end}`;
}

/** The text for each thing that a job can wait for. */
export const WAIT_REASONS: Readonly<Record<WaitsFor, string>> = {
  parents: "jobs that it waits for have not ended",
  delay: "its start time is later",
  retry: "its next attempt is not due yet",
  "no worker": "no worker is alive",
  "queue paused": "the queue is paused",
  "key paused": "its key is paused",
  "bucket paused": "the bucket is paused",
  "downstream away": "the downstream is unreachable",
  "key away": "the downstream of its key is unreachable",
  cooldown: "the bucket is cooling down",
  limit: "a limit of the bucket has no room",
  turns: "a limit of the bucket has no room, and calls of another key have the next turn",
  key: "a limit of its key has no room",
  lease: "as many calls are running as may at once",
  lane: "there is room, and it waits for its turn and a worker",
};

/** Names the jobs that a job waits for: `"the end of 12 jobs: charges:7, charges:8, …"`. */
function parentsText({ parents, isGroupOpen }: JobExplanation): string {
  const { count = 0, first = [] } = parents ?? {};
  const names = first.map(({ queue, id }) => `${queue}:${id}`).join(", ");
  const more = count > first.length ? ", …" : "";
  const jobs = count === 0 ? "" : `the end of ${counted(count, "job")}: ${names}${more}`;
  const group = isGroupOpen === true ? "its group to be closed" : "";
  return [group, jobs].filter((part) => part !== "").join(", and ") || "its parents";
}

/**
 * Explains why a job waits: `"a limit of the bucket has no room (100/s), until
 * 2026-01-01T00:00:00.000Z"`.
 */
export function whySentence(why: JobExplanation | undefined): string {
  if (why === undefined) return "it has started in the meantime";
  if (why.waitsFor === "parents") return parentsText(why);
  const { waitsFor, limit, untilMs } = why;
  const which = limit === undefined ? "" : ` (${limit})`;
  const end = untilMs === undefined || untilMs === Infinity ? "" : `, until ${timeText(untilMs)}`;
  return `${WAIT_REASONS[waitsFor]}${which}${end}`;
}

/** Explains why a job waits. Adds its position and expected start if other jobs start before it. */
export function whyText(why: JobExplanation | undefined, eta?: JobEta): string {
  if (why === undefined) return "nothing: it is running or has ended";
  if (why.waitsFor === "parents") return parentsText(why);
  const { waitsFor, limit, untilMs } = why;
  const what = limit === undefined ? waitsFor : `${waitsFor}: ${limit}`;
  // The next slot of the limit goes to another job.
  if (eta?.startsInMs !== undefined && eta.position > 0) {
    const others = eta.position === 1 ? "1 job starts" : `${eta.position} jobs start`;
    return `${what}; ${others} before it, which is expected to start in ${duration(eta.startsInMs)}`;
  }
  const end = untilMs === undefined || untilMs === Infinity ? "" : `, until ${timeText(untilMs)}`;
  return `${what}${end}`;
}

export interface AllBuckets extends Pick<Overview, "buckets" | "unreachable" | "replicas"> {
  /** The waiting jobs of each bucket that has queues. */
  readonly jobs: Readonly<Record<string, readonly WaitingJobs[]>>;
}

const HEADS = [
  "bucket",
  "cap/s",
  "actual/s",
  "pending calls",
  "oldest",
  "pending jobs",
  "limited by",
  "set by",
];

export function showBuckets(all: AllBuckets): Shown {
  const rows = all.buckets.map((status) => {
    const jobs = all.jobs[status.name] ?? [];
    const waiting = jobs.reduce((total, each) => total + each.waiting, 0);
    return [
      status.name,
      perSecond(status.capPerSecond),
      status.hasCalls ? perSecond(status.actualPerSecond) : "no calls yet",
      String(status.waiting.total),
      status.waiting.total === 0 ? "-" : duration(status.waiting.oldestMs),
      String(waiting),
      status.limitedBy ?? jobs[0]?.why?.limit ?? "-",
      sourceText(status),
    ];
  });
  return [
    rows.length === 0 ? "No process has reported a bucket." : { heads: HEADS, rows },
    counted(all.replicas.length, "process", "processes"),
    ...all.buckets.flatMap((status) =>
      adaptiveText(status).map((text) => `${status.name}: ${text}`),
    ),
    ...lacksOf(all),
  ];
}

export function lacksOf({ unreachable }: Pick<Overview, "unreachable">): string[] {
  return unreachable.map(
    ({ bucket: name, reason }) => `Unreachable: ${name ?? "a Redis server"}: ${reason}`,
  );
}

export function showBucket({
  jobs,
  ...status
}: BucketStatus & { readonly jobs: readonly WaitingJobs[] }): Shown {
  const { limits, waiting, turns, reports, shadows } = status;
  const cap = status.capPerSecond === undefined ? "-" : `${perSecond(status.capPerSecond)}/s`;
  const actual = `${perSecond(status.actualPerSecond)}/s over the last 10 s`;
  const byPriority = Object.entries(waiting.byPriority)
    .filter(([, count]) => count > 0)
    .map(([priority, count]) => `${count} ${priority}`);
  return [
    ...factLines(
      [
        ["policy", `${status.policy} (${setByText(status)})`],
        ["cap", cap],
        ["actual", status.hasCalls ? actual : "no calls yet"],
        ["pending", [waiting.total, ...byPriority].join(", ")],
        ["generation", String(status.generation)],
      ],
      12,
    ),
    ...reasonsOf(status, jobs),
    ...section(
      ["limit", "used", "capacity", "next slot in"],
      limits.map(({ name, level, capacity, nextFreeMs }) => [
        name,
        String(level),
        String(capacity),
        nextSlotText(status, nextFreeMs),
      ]),
    ),
    ...(status.budgets === undefined ? [] : ["", ...[showBudgets(status.budgets)].flat()]),
    ...section(
      ["member", "state", "limits"],
      (status.members ?? []).map((member) => [
        member.name,
        memberText(member),
        member.limits.map((each) => `${each.level}/${each.capacity} ${each.unit}`).join(", "),
      ]),
    ),
    ...section(
      ["next turn", "weight", "floor", "goes first", "oldest call waits for"],
      turns.map((turn) => [
        turnKeyText(turn),
        turn.weights.join(" / "),
        turn.floor ?? "-",
        turn.goesFirst ?? "-",
        duration(turn.waitedMs),
      ]),
    ),
    ...section(
      ["shadow limit", "calls", "would have waited", "longest wait", "would have been refused"],
      shadows.map((shadow) => [
        shadow.name,
        String(shadow.calls),
        String(shadow.wouldHaveWaited),
        shadow.wouldHaveWaited === 0 ? "-" : duration(shadow.longestWaitMs),
        String(shadow.wouldHaveBeenRefused),
      ]),
    ),
    ...section(
      ["replica", "calls/s", "pending calls", "last report"],
      reports.map((report) => [
        report.replica,
        perSecond(report.perSecond),
        String(report.waiting),
        `${duration(report.reportedAgoMs)} ago`,
      ]),
    ),
  ];
}

function memberText({ drained, coolingForMs, unreachableForMs }: MemberState): string {
  if (drained) return "drained";
  if (unreachableForMs > 0) return `unreachable, next try in ${duration(unreachableForMs)}`;
  return coolingForMs > 0 ? `cooling down for ${duration(coolingForMs)}` : "takes calls";
}

function nextSlotText({ pausedForMs }: BucketStatus, nextFreeMs: number | undefined): string {
  if (pausedForMs === Infinity) return "after a resume";
  return nextFreeMs === undefined ? "unknown" : duration(nextFreeMs);
}

/** Formats a table with an empty line above it. Returns nothing if the table has no rows. */
function section(heads: readonly string[], rows: readonly (readonly string[])[]) {
  return rows.length === 0 ? [] : ["", { heads, rows }];
}

function sourceText({ source, rulesVersion, setBy }: BucketBrief): string {
  if (source === "override") return `override by ${setBy?.by ?? "?"}`;
  return source === "rules" ? `rules, version ${rulesVersion ?? "unknown"}` : "code";
}

function setByText(status: BucketStatus): string {
  const { source, setBy } = status;
  if (source !== "override") return sourceText(status);
  return setBy === undefined ? "override by an unknown user" : `override ${byText(setBy)}`;
}

/** Lists the reasons why calls are delayed, the strongest reason first. */
export function reasonsOf(status: BucketStatus, jobs: readonly WaitingJobs[]): string[] {
  const { pausedForMs, pausedBy, coolingForMs, unreachableForMs, rateFactor, waiting, limitedBy } =
    status;
  const reasons: string[] = [];
  if (pausedForMs > 0) {
    const by = pausedBy === undefined ? "by an unknown user" : byText(pausedBy);
    reasons.push(`The bucket is paused for ${duration(pausedForMs)}: ${by}.`);
  }
  if (coolingForMs > 0) {
    reasons.push(`The downstream refused calls. No call starts for ${duration(coolingForMs)}.`);
  }
  if (unreachableForMs > 0) {
    reasons.push(
      `The downstream is unreachable. The next job tries it in ${duration(unreachableForMs)}.`,
    );
  }
  if (rateFactor < 1) {
    reasons.push(`After a refusal, ${Math.round(rateFactor * 100)} % of the rate is in force.`);
  }
  if (waiting.total === 0)
    reasons.push(jobs.length === 0 ? "No call or job waits." : "No call waits.");
  else if (limitedBy !== undefined && pausedForMs === 0 && coolingForMs === 0) {
    reasons.push(
      `${counted(waiting.total, "call waits", "calls wait")} for ${limitedBy} (${setByText(status)}), the oldest for ${duration(waiting.oldestMs)}.`,
    );
  } else {
    const calls = counted(waiting.total, "call waits", "calls wait");
    reasons.push(`${calls}, the oldest for ${duration(waiting.oldestMs)}.`);
  }
  if (status.turns.length > 1) reasons.push(turnsText(status.turns));
  reasons.push(...(status.budgets ?? []).flatMap(budgetText));
  reasons.push(...adaptiveText(status));
  for (const { queue, waiting: count, why: reason } of jobs) {
    const oldest = reason === undefined ? "" : ` The oldest waits: ${whySentence(reason)}.`;
    reasons.push(`${counted(count, "job")} of queue ${queue} wait for this bucket.${oldest}`);
  }
  return reasons;
}

/** The most keys in {@link BucketStatus.turns}. */
const MOST_TURNS = 32;

/** Says that keys take turns, and whose call is next. */
function turnsText(turns: readonly KeyTurn[]): string {
  const many = turns.length < MOST_TURNS ? String(turns.length) : `At least ${MOST_TURNS}`;
  const [next] = turns;
  const why = next!.goesFirst === undefined ? "" : ` (${FIRST_REASONS[next!.goesFirst]})`;
  return `${many} keys with pending calls take turns. The next call is of ${turnKeyText(next!)}${why}.`;
}

const FIRST_REASONS: Readonly<Record<NonNullable<KeyTurn["goesFirst"]>, string>> = {
  critical: "it is critical",
  floor: "it is within the floor of its key",
};

function turnKeyText({ key, keys }: KeyTurn): string {
  if (keys !== undefined) return JSON.stringify(keys);
  return key === undefined ? "calls without a key" : keyText(key);
}

/** Says for each limit that adapts to latency how many calls may run at once, and why. */
export function adaptiveText({
  limits,
  members = [],
}: Pick<BucketStatus, "limits" | "members">): string[] {
  return [...limits, ...members.flatMap((member) => member.limits)].flatMap(
    ({ name, adaptive }) => {
      if (adaptive === undefined) return [];
      const { atOnce, value, shadow, baselineMs, recentMs, reason } = adaptive;
      const now = shadow
        ? `is in shadow: ${atOnce} calls may run at once, and it would allow ${Math.round(value)}`
        : `lets ${counted(atOnce, "call")} run at once now`;
      const latency =
        reason === "calibrating"
          ? "It calibrates: it still measures the latency without a queue."
          : `Calls take ${duration(recentMs)}, and ${duration(baselineMs)} without a queue.`;
      return [`The limit ${name} ${now}. ${latency}`];
    },
  );
}

/** Says that a budget is spent, or when it will be. */
function budgetText(budget: BudgetState) {
  const { name, key, keys, member, spent, amount, unit, remaining, resetsAt, spentAt } = budget;
  const isOfBucket = key === undefined && keys === undefined && member === undefined;
  const which = `budget ${name}${isOfBucket ? "" : ` of ${ownerText(budget)}`}`;
  const used = `${spent} of ${amount} ${unit} spent`;
  if (remaining === 0) return [`The ${which} is spent until ${dateText(resetsAt)}: ${used}.`];
  if (spentAt === undefined) return [];
  return [`At its pace so far, the ${which} is spent on ${dateText(spentAt)}: ${used}.`];
}

/** Formats a time in UTC. Over HTTP, dates arrive as text. */
function dateText(date: Date | string): string {
  return `${new Date(date).toISOString().slice(0, 16).replace("T", " ")} UTC`;
}

function ownerText({ key, keys, member }: BudgetState): string {
  if (member !== undefined) return `member ${member}`;
  return keys === undefined ? keyText(key) : JSON.stringify(keys);
}

export function showBudgets(
  budgets: readonly BudgetState[],
  asked: Readonly<Record<string, unknown>> = {},
): Shown {
  if (budgets.length === 0) {
    const isOfBucket = ["key", "member", "all"].every((name) => asked[name] === undefined);
    return isOfBucket
      ? "No budget of the bucket itself. Use --key, --member or --all to see others."
      : "No budget.";
  }
  const heads = ["budget", "key", "spent", "of", "reserved", "granted", "resets", "spent on"];
  const rows = budgets.map((each) => [
    each.name,
    ownerText(each),
    String(each.spent),
    String(each.amount),
    String(each.reserved),
    String(each.granted),
    dateText(each.resetsAt),
    each.remaining === 0 ? "spent" : each.spentAt === undefined ? "-" : dateText(each.spentAt),
  ]);
  return [{ heads, rows }];
}

export interface Preview extends BucketPreview {
  readonly bucket: string;
  readonly queues: readonly ({ readonly queue: string } & QueuePreview)[];
}

export interface CodePreview {
  readonly bucket: string;
  readonly now: string;
  readonly after: string;
}

export function showPreview(shown: Preview | CodePreview): Shown {
  if (!("queues" in shown))
    return `${shown.bucket}: ${shown.now} would become the policy of the code.`;
  const { bucket: name, now, after, queues } = shown;
  const callers = counted(now.waiting, "pending call");
  return [
    `${name}: ${now.policy} would become ${after.policy}.`,
    ...(now.waiting === 0 ? [] : [`${callers}: ${goneText(now, after)}.`]),
    ...queues.map((each) => `Queue ${each.queue}: ${queuePreviewText(each)}`),
    "Nothing was changed.",
  ];
}

export function queuePreviewText({ now, after }: QueuePreview): string {
  const missed = now.missed.length + after.missed.length;
  const late = `; ${now.missed.length} miss their deadline now, ${after.missed.length} after the change`;
  const jobs = counted(now.waiting, "pending job");
  return `${jobs}: ${goneText(now, after)}${missed === 0 ? "" : late}.`;
}

type Gone = Pick<BucketOutlook, "emptyInMs"> | Pick<Forecast, "emptyInMs" | "reason">;

function goneText(now: Gone, after: Gone): string {
  if (now.emptyInMs === undefined && after.emptyInMs === undefined) {
    return `the time until all have started is unknown${reasonText(after)}`;
  }
  return `all start within ${goneIn(now)} now, within ${goneIn(after)} after the change`;
}

function goneIn(gone: Gone): string {
  return gone.emptyInMs === undefined
    ? `an unknown time${reasonText(gone)}`
    : duration(gone.emptyInMs);
}

function reasonText(gone: Gone): string {
  const reason = "reason" in gone ? gone.reason : undefined;
  return reason === undefined ? "" : ` (${WAIT_REASONS[reason]})`;
}
