/**
 * The JSON Schemas of results. Results leave out unknown fields instead of setting them to `null`.
 */
export const TEXT = { type: "string" };
export const NUMBER = { type: "number" };
export const COUNT = { type: "integer", minimum: 0 };
const ENDLESS = { anyOf: [{ type: "number" }, { const: "forever" }] };
const KEY = { anyOf: [TEXT, { type: "array", items: TEXT }] };

const text = (description: string): object => ({ type: "string", description });
const count = (description: string): object => ({ type: "integer", minimum: 0, description });
const number = (description: string): object => ({ type: "number", description });
/** The schema of a time that may have no end. */
const endless = (description: string): object => ({
  anyOf: [{ type: "number" }, { const: "forever" }],
  description: `${description} "forever" if it has no end.`,
});

/** The schema of an object. A field whose name ends with `?` may be missing. */
export const object = (fields: Readonly<Record<string, object>>): object => {
  const names = Object.keys(fields);
  const properties = Object.entries(fields).map(([name, schema]) => [plain(name), schema]);
  return {
    type: "object",
    required: names.filter((name) => !name.endsWith("?")),
    properties: Object.fromEntries(properties),
  };
};
const plain = (name: string): string => name.replace(/\?$/, "");
export const list = (items: object): object => ({ type: "array", items });

const SET_BY: object = object({
  by: text("Who."),
  "reason?": text("Why."),
  atMs: number("When, in ms since 1970, by the clock of Redis."),
  endsInMs: endless("In how many ms it ends."),
});

const LIMIT = object({
  name: text('"100/s"'),
  unit: text('"calls"'),
  scope: text('"bucket", "key", or the name of the key.'),
  "keyLevel?": count("Which name of a path it is for."),
  capacity: number("What it gives at once."),
  level: number("What is used of that."),
  remaining: number("What could pass now."),
  "nextFreeMs?": number("Ms until a call of cost 1 may pass."),
  "adaptive?": object({
    atOnce: number("How many calls may run at once now."),
    value: number("The computed limit. It differs from atOnce in shadow and during a probe."),
    min: count("The limit never falls below this."),
    max: count("The limit never exceeds this."),
    shadow: { type: "boolean", description: "Whether only max binds." },
    baselineMs: number("The latency without a queue, in ms."),
    recentMs: number("The mean latency of the last window, in ms."),
    gradient: number("The baseline divided by the recent latency."),
    reason: text('Why the limit has its value: "raised", "latency", "drops", and so on.'),
  }),
});

const TURN = object({
  "key?": { description: "The key. Without key and keys: the calls that have no key." },
  "keys?": { description: "The key by name." },
  weights: { ...list(NUMBER), description: "The weight of each name of the key: [2]." },
  "floor?": text('The guaranteed part of the key: "20/s".'),
  "goesFirst?": {
    enum: ["critical", "floor"],
    description: "Why its next call goes before all turns.",
  },
  waitedMs: number("How long its oldest pending call has waited, in ms."),
});

const SHADOW = object({
  name: text('"50/s"'),
  unit: text('"calls"'),
  calls: count("Calls that it has seen with these numbers."),
  wouldHaveWaited: count("Those that would have waited for it."),
  longestWaitMs: number("The longest of these waits, in ms."),
  wouldHaveBeenRefused: count("Those that could never have passed, or not within an hour."),
});

export const REPLICA: object = object({
  replica: text("A name that no other process has."),
  host: text("Its machine."),
  pid: count("Its process id there."),
  version: text("The version of Sluice."),
  startedAtMs: number("When it started, in ms since 1970."),
  seenAtMs: number("When it last reported."),
});

/**
 * The latest report of a replica about a bucket; `toldAgoMs` is the former name of `reportedAgoMs`.
 */
const REPORT = object({
  replica: text("The process."),
  reportedAgoMs: number("The age of this report."),
  toldAgoMs: number("Deprecated: the same as reportedAgoMs."),
  waiting: count("Pending calls of the process."),
  perSecond: number("Calls per second that it started."),
});

const STATUS_FIELDS = {
  name: text("The bucket."),
  policy: text("The policy in force."),
  policyFrom: text('"code", or where it was overridden.'),
  generation: count(
    "Increases with each change. Send it with a change that is based on this state.",
  ),
  "capPerSecond?": number("The rate that the shared limits allow."),
  actualPerSecond: number("Calls per second of all processes in the last ten seconds."),
  refusals: count(
    "Responses that started a cooldown or reduced the rate, over all processes. Only increases.",
  ),
  source: text('Where the policy comes from: "code", "override" or "rules".'),
  "rulesVersion?": number("The version of the rules file, if it contains the bucket."),
  "setBy?": SET_BY,
  "pausedBy?": SET_BY,
  "limitedBy?": text("What delays most pending calls."),
  waiting: object({
    total: count("Pending calls of all processes."),
    byPriority: { type: "object", additionalProperties: { type: "integer" } },
    oldestMs: number("How long the oldest call has waited."),
  }),
  coolingForMs: endless("Ms until a cooldown ends."),
  pausedForMs: endless("Ms until a pause ends."),
  unreachableForMs: endless("While the downstream is unreachable: ms until the next attempt."),
  awayForMs: endless("Deprecated: the same as unreachableForMs."),
  rateFactor: number("The factor of the rate after a refusal."),
  replicas: count("The number of processes that drew in this second or the last."),
  waitingHere: count("Pending calls in the process of the server."),
  shadows: list(SHADOW),
  hasCalls: {
    type: "boolean",
    description: "Whether a process has used it in the last 30 days; false if only rules name it.",
  },
  hasBudgets: { type: "boolean", description: "Whether it has a budget that all keys share." },
  isPool: { type: "boolean", description: "Whether it is a pool." },
  isAdaptive: {
    type: "boolean",
    description: "Whether it has a shared concurrency limit that adapts to latency.",
  },
  reports: list(REPORT),
  toldBy: list(REPORT),
};

/** The schema of a bucket without the state of each limit. */
export const BRIEF: object = object(STATUS_FIELDS);

export const BUDGET: object = object({
  name: text('"500/month usd"'),
  unit: text('"usd"'),
  per: text('"month", or "30d" for rolling days.'),
  "key?": { description: "The key that it belongs to." },
  "keys?": { description: "The key by name that it belongs to." },
  "member?": text("The member of a pool that it belongs to."),
  amount: number("The amount of the period, with what was carried over and granted."),
  spent: number("What calls have spent, with what they have reserved."),
  reserved: number("The estimates of calls that have not settled yet."),
  carried: number("What was carried over from earlier periods."),
  granted: number("What was granted in addition until the period ends."),
  remaining: number("The rest."),
  startsAt: text("The start of the period, in ISO 8601."),
  resetsAt: text("The end of the period, in ISO 8601."),
  "spentAt?": text("When it is spent at the pace of the period so far. Left out if it lasts."),
});

const MEMBER = object({
  name: text("The name of the member."),
  drained: { type: "boolean", description: "Whether it gets no new calls." },
  coolingForMs: number("The rest of its cooldown."),
  unreachableForMs: number("The time until the next probe, while it is unreachable."),
  rateFactor: number("The fraction of its rate that it may use."),
  limits: list(LIMIT),
});

export const STATUS: object = object({
  ...STATUS_FIELDS,
  limits: list(LIMIT),
  turns: {
    ...list(TURN),
    description: "The first 32 keys with pending calls, the one with the next turn first.",
  },
  "budgets?": list(BUDGET),
  "members?": { ...list(MEMBER), description: "The members of a pool." },
});

const STEERED = object({
  policy: text("The policy in force."),
  source: text('"code", "override", or "rules".'),
  pausedForMs: endless("The rest of the pause."),
  "granted?": {
    type: "object",
    additionalProperties: NUMBER,
    description: "What is granted in addition, by budget.",
  },
});

export const CHANGE: object = object({
  id: text('"1764166000000-0"'),
  bucket: text("The bucket."),
  action: {
    type: "string",
    enum: ["configure", "pause", "resume", "grant", "restore", "undo", "expire", "rules"],
  },
  subject: { type: "string", enum: ["policy", "pause", "budget"] },
  atMs: number("When, in ms since 1970."),
  by: text("Who."),
  "reason?": text("Why."),
  "key?": { description: "The key that it affects." },
  "keys?": { description: "The keys by name that it affects." },
  "forMs?": number("Its intended duration."),
  before: STEERED,
  after: STEERED,
  "undoes?": text("The change that this one undid."),
  "undoneBy?": text("The change that undid this one."),
  "failed?": text("Why it failed."),
});

const FACTS = (description: string): object => ({
  type: "object",
  additionalProperties: true,
  description,
});

export const QUEUE_CHANGE: object = object({
  id: text('"1764166000000-2000000"'),
  queue: text("The queue; of an endpoint, the sender."),
  "endpoint?": object({
    tenant: text("The tenant of the endpoint."),
    "id?": text("Left out for all of theirs."),
  }),
  action: text('"pause", "drain", "replay", "disable", "rules" and the like.'),
  atMs: number("When, in ms since 1970."),
  by: text("Who."),
  "reason?": text("Why."),
  "key?": { description: "The key that it affects." },
  "filter?": FACTS("The affected jobs, besides the key."),
  "forMs?": number("Its intended duration."),
  "before?": FACTS("A pause, jobs by state, the settings of an endpoint, or the rules."),
  "after?": FACTS("The same afterwards. Left out if unknown or removed."),
  "jobs?": count("The number of changed jobs."),
  "undoes?": text("The change that this one undid."),
  "undoneBy?": text("The change that undid this one."),
  "failed?": text("Why it failed, or stopped early."),
});

/** The schema of a change of a bucket, a queue or an endpoint. */
export const LOGGED_CHANGE: object = { anyOf: [CHANGE, QUEUE_CHANGE] };

export const UNREACHABLE: object = list(
  object({ "bucket?": text("Undefined for a server."), reason: text("Why.") }),
);

export const TOTALS: object = object({
  atMs: NUMBER,
  buckets: COUNT,
  waiting: COUNT,
  oldestMs: NUMBER,
  actualPerSecond: NUMBER,
  capPerSecond: NUMBER,
  cooling: COUNT,
  paused: COUNT,
  away: COUNT,
  overrides: COUNT,
  queuedJobs: { ...COUNT, description: "The due jobs that have not started, of all queues." },
  replicas: list(REPLICA),
  unreachable: UNREACHABLE,
});

const WHY = object({ waitsFor: TEXT, "limit?": TEXT, sinceMs: NUMBER, "untilMs?": ENDLESS });

export const LANES: object = {
  ...list(
    object({ key: KEY, jobs: COUNT, weight: NUMBER, blockedForMs: ENDLESS, asideMs: ENDLESS }),
  ),
  description:
    "The keys with the most pending jobs, up to 20. asideMs is the former name of blockedForMs.",
};

export const SETTINGS_SEEN: object = {
  ...list(
    object({ name: TEXT, value: { anyOf: [NUMBER, TEXT] }, setBy: TEXT, "override?": SET_BY }),
  ),
  description: 'The settings, and what set each: "override", "rules" or "code".',
};

const TOTAL_CONCURRENCY = count("How many jobs these workers can run at once.");
const PLACES = count("Deprecated: the same as totalConcurrency.");

export const QUEUE_STATUS: object = object({
  name: TEXT,
  generation: count(
    "Increases with each change by an operator. Send it with a change that is based on this state.",
  ),
  jobs: object({ waiting: COUNT, active: COUNT, delayed: COUNT, done: COUNT, failed: COUNT }),
  "oldest?": object({ id: TEXT, "key?": KEY, waitingMs: NUMBER, "why?": WHY }),
  unexplainedMs: number("The part of the oldest job's wait that no limit, pause or turn explains."),
  "emptyInMs?": { ...ENDLESS, description: "Until the backlog is empty, if nothing changes." },
  "goneInMs?": { ...ENDLESS, description: "Deprecated: the same as emptyInMs." },
  "reason?": text("Why emptyInMs is not known."),
  lanes: LANES,
  totalLanes: count("The number of keys with pending jobs."),
  lanesInAll: count("Deprecated: the same as totalLanes."),
  workers: COUNT,
  totalConcurrency: TOTAL_CONCURRENCY,
  places: PLACES,
  workersWanted: COUNT,
  donePerSecond: NUMBER,
  failedPerSecond: NUMBER,
  failureRate: NUMBER,
  "handlerMs?": NUMBER,
  settings: SETTINGS_SEEN,
  "rulesVersion?": number("The version of the rules, if they contain the queue."),
});

export const LISTED_QUEUE: object = object({
  name: TEXT,
  bucket: TEXT,
  workers: COUNT,
  totalConcurrency: TOTAL_CONCURRENCY,
  places: PLACES,
  running: COUNT,
  "status?": QUEUE_STATUS,
  "unreachable?": text("Why its status is not known."),
});

export const WORKER: object = object({
  worker: TEXT,
  replica: TEXT,
  queue: TEXT,
  state: { type: "string", enum: ["running", "closing", "silent"] },
  sinceMs: NUMBER,
  running: COUNT,
  waiting: COUNT,
  concurrency: COUNT,
  paused: { type: "boolean" },
  "client?": text("The name of the program that takes the jobs over HTTP."),
});

export const OUTBOX: object = object({
  outbox: text("The unique id of the outbox, from its database."),
  name: text('Its table: "public.sluice_outbox".'),
  pending: count("The rows that no relay has moved yet, without failed rows."),
  failed: count("The rows that relays no longer try."),
  oldestMs: number("The age of the oldest pending row; 0 without pending rows."),
  moved: count("The rows that all relays have moved. Only increases."),
  reportedAgoMs: number("The age of the report. Relays report every 5 to 30 seconds."),
});

export const QUEUE_PAUSE: object = object({ "key?": KEY, forMs: ENDLESS });

export const SCHEDULE: object = object({
  dedupeId: TEXT,
  "every?": NUMBER,
  "cron?": TEXT,
  "timeZone?": TEXT,
  nextAtMs: NUMBER,
  nextRunsAtMs: list(NUMBER),
  missed: COUNT,
  "last?": object({ id: TEXT, startedAtMs: NUMBER, "endedAtMs?": NUMBER, "outcome?": TEXT }),
});

export const JOB: object = object({
  id: TEXT,
  "name?": TEXT,
  "key?": KEY,
  priority: TEXT,
  attempts: COUNT,
  attemptsMade: COUNT,
  "dedupeId?": TEXT,
  enqueuedAtMs: NUMBER,
  dueAtMs: NUMBER,
  "startedAtMs?": NUMBER,
  "endedAtMs?": NUMBER,
  "data?": { description: "Only if requested." },
  "result?": { description: "Only if requested, and the job is done." },
  "unreadable?": text("Why this process cannot decode the data or result. Only if requested."),
});

export const LINKED_JOBS: object = object({
  first: {
    ...list(object({ queue: TEXT, id: TEXT, "state?": TEXT })),
    description: "The first 24 jobs.",
  },
  more: count("The number of further jobs."),
});

export const DEAD_LETTER: object = object({
  id: TEXT,
  "name?": TEXT,
  "key?": KEY,
  reason: TEXT,
  failedAtMs: NUMBER,
  attempts: COUNT,
  "stack?": TEXT,
  "data?": { description: "Only if requested." },
  "unreadable?": text("Why this process cannot decode the data. Only if requested."),
});

export const FAILED_GROUP: object = object({
  group: text("The id of the group, for replay and purge."),
  reason: text("The reason of the newest dead letter."),
  "errorName?": TEXT,
  "code?": TEXT,
  count: COUNT,
  firstAtMs: NUMBER,
  lastAtMs: NUMBER,
  tenants: COUNT,
  topTenants: list(TEXT),
});

export const ATTEMPT: object = object({
  message: TEXT,
  endpoint: TEXT,
  atMs: NUMBER,
  attempt: COUNT,
  purpose: { type: "string", enum: ["send", "test", "replay"] },
  outcome: { ...TEXT, description: '"success", "server-error", "timeout" and the like.' },
  "status?": COUNT,
  durationMs: NUMBER,
  "error?": TEXT,
  "by?": TEXT,
  "answer?": text("The start of the response. Only if requested."),
});

const ENDPOINT_STATUS = object({
  state: { type: "string", enum: ["well", "failing", "left alone", "disabled"] },
  pausedForMs: number("Ms until a pause ends. Nothing is sent to the endpoint until then."),
  leftAloneForMs: number("Deprecated: the same as pausedForMs."),
  "failingSinceMs?": number("In ms since 1970."),
  failures: count("Consecutive failed attempts."),
  waiting: count("Due messages that wait."),
  attemptsInLastMinute: COUNT,
  limits: {
    ...list(object({ name: TEXT, value: { anyOf: [NUMBER, TEXT] }, setBy: TEXT })),
    description: 'Its limits and those of its tenant, and who set each: "own", "rules" or "code".',
  },
  "lastAttempt?": ATTEMPT,
  "lastFailure?": { ...ATTEMPT, description: "The latest failure among the last ten attempts." },
});

export const ENDPOINT: object = object({
  tenant: TEXT,
  id: TEXT,
  url: text(
    'Without its query, which may be secret, and without its path unless the token has the role "act".',
  ),
  "types?": list(TEXT),
  "rate?": { description: "Its own rate. Defaults to that of the sender." },
  "concurrency?": COUNT,
  "ordered?": { type: "boolean" },
  "description?": TEXT,
  headers: { ...list(TEXT), description: "Only their names." },
  secrets: count("The number of secrets that sign."),
  "disabled?": object({ atMs: NUMBER, reason: TEXT, why: text("Deprecated: the same as reason.") }),
  createdAtMs: NUMBER,
  changedAtMs: NUMBER,
  status: ENDPOINT_STATUS,
});

/** The schema of a job as its producers see it. */
export const JOB_STATUS: object = {
  type: "object",
  required: ["id"],
  properties: {
    id: { type: "string" },
    isNew: { type: "boolean", description: "Whether this request stored it." },
    state: {
      enum: ["waiting", "active", "delayed", "done", "failed", "gone"],
      description:
        "Left out, with all fields below, if the job was stored but its state could not be read.",
    },
    position: {
      type: "integer",
      description: "The number of jobs that are expected to start before it.",
    },
    startsInMs: { type: "number" },
    startsAtMs: { type: "number", description: "In ms since 1970." },
    noStart: { type: "string", description: "Why no start can be predicted, such as no worker." },
    waitsFor: { type: "string" },
  },
};
