/** The schemas of what is sent and answered, as OpenAPI shows them. A field that is not known is left out, never `null`. */

import { STATUS_OF_CODE } from "../problem.ts";

const text = (description: string): object => ({ type: "string", description });
const count = (description: string): object => ({ type: "integer", minimum: 0, description });
const number = (description: string): object => ({ type: "number", description });
/** A time that may have no end. */
const endless = (description: string): object => ({
  anyOf: [{ type: "number" }, { const: "forever" }],
  description: `${description} "forever" if it has no end.`,
});

export const object = (
  properties: Readonly<Record<string, object>>,
  optional: readonly string[] = [],
): object => ({
  type: "object",
  required: Object.keys(properties).filter((name) => !optional.includes(name)),
  properties,
});
export const list = (items: object): object => ({ type: "array", items });
export const answer = (description: string, schema: object): object => ({ description, ...schema });

export const SET_BY: object = object(
  {
    by: text("Who."),
    reason: text("Why."),
    atMs: number("When, in ms since 1970, by the clock of Redis."),
    endsInMs: endless("In how many ms it ends."),
  },
  ["reason"],
);

const LIMIT = object(
  {
    name: text('"100/s"'),
    unit: text('"calls"'),
    scope: text('"bucket", "key", or the name of the key.'),
    keyLevel: count("Which name of a path it is for."),
    capacity: number("What it gives at once."),
    level: number("What is used of that."),
    remaining: number("What could pass now."),
    nextFreeMs: number("Ms until a call of cost 1 may pass."),
  },
  ["keyLevel", "nextFreeMs"],
);

const SHADOW = object({
  name: text('"50/s"'),
  unit: text('"calls"'),
  calls: count("Calls that it has seen since it has its numbers."),
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
  seenAtMs: number("When it last told something."),
});

const STATUS_FIELDS = {
  name: text("The bucket."),
  policy: text("The policy in force."),
  policyFrom: text('"code", or where it was put over that.'),
  generation: count("Grows with each change; send it with a change that is based on what you saw."),
  capPerSecond: number("What the rates that all calls share allow."),
  actualPerSecond: number("Calls of all processes in the last ten seconds, by second."),
  refusals: count("Answers that cooled it down or cut its rate, of all processes. Only grows."),
  source: text('Where the policy comes from: "code", "override" or "rules".'),
  rulesVersion: number("The version of the rules file, if it says anything of the bucket."),
  setBy: SET_BY,
  pausedBy: SET_BY,
  limitedBy: text("What holds most of those back that wait."),
  waiting: object({
    total: count("Callers that wait, of all processes."),
    byPriority: { type: "object", additionalProperties: { type: "integer" } },
    oldestMs: number("How long the oldest has waited."),
  }),
  coolingForMs: endless("Ms until a cooldown ends."),
  pausedForMs: endless("Ms until a pause ends."),
  awayForMs: endless("While the downstream is away: ms until the next try."),
  rateFactor: number("The part of the rate in force after a refusal."),
  replicas: count("How many processes drew in this second or the last."),
  waitingHere: count("Callers that wait in the process of the server."),
  shadows: list(SHADOW),
  hasCalls: {
    type: "boolean",
    description: "Whether a process has used it in the last 30 days; false if only rules name it.",
  },
  toldBy: list(
    object({
      replica: text("The process."),
      toldAgoMs: number("How long ago it told this."),
      waiting: count("Callers that wait there."),
      perSecond: number("Calls that it started, by second."),
    }),
  ),
};
const NOT_ALWAYS = ["capPerSecond", "rulesVersion", "setBy", "pausedBy", "limitedBy"];

/** A bucket without the state of each limit. */
export const BRIEF: object = object(STATUS_FIELDS, NOT_ALWAYS);
export const STATUS: object = object({ ...STATUS_FIELDS, limits: list(LIMIT) }, NOT_ALWAYS);

const STEERED = object({
  policy: text("The policy in force."),
  source: text('"code", "override", or "rules".'),
  pausedForMs: endless("For how long nothing starts."),
});

export const CHANGE: object = object(
  {
    id: text('"1764166000000-0"'),
    bucket: text("The bucket."),
    action: { type: "string", enum: ["configure", "pause", "resume", "undo", "expire", "rules"] },
    subject: { type: "string", enum: ["policy", "pause"] },
    atMs: number("When, in ms since 1970."),
    by: text("Who."),
    reason: text("Why."),
    key: { description: "The key that it is about." },
    keys: { description: "The keys by name that it is about." },
    forMs: number("For how long it was to hold."),
    before: STEERED,
    after: STEERED,
    undoes: text("The change that this one took back."),
    undoneBy: text("The change that took this one back."),
    failed: text("Why it was not made after all."),
  },
  ["reason", "key", "keys", "forMs", "undoes", "undoneBy", "failed"],
);

const FACTS = (description: string): object => ({
  type: "object",
  additionalProperties: true,
  description,
});

export const QUEUE_CHANGE: object = object(
  {
    id: text('"1764166000000-2000000"'),
    queue: text("The queue; of an endpoint, the sender."),
    endpoint: object({ tenant: text("Whose it is."), id: text("Left out for all of theirs.") }, [
      "id",
    ]),
    action: text('"pause", "drain", "replay", "disable", "rules" and the like.'),
    atMs: number("When, in ms since 1970."),
    by: text("Who."),
    reason: text("Why."),
    key: { description: "The key that it is about." },
    filter: FACTS("Which jobs were meant, besides the key."),
    forMs: number("For how long it was to hold."),
    before: FACTS("A pause, jobs by state, the settings of an endpoint, or what rules say."),
    after: FACTS("The same afterwards; left out if it is not known, and of what was removed."),
    jobs: count("How many jobs it has changed."),
    undoes: text("The change that this one took back."),
    undoneBy: text("The change that took this one back."),
    failed: text("Why it was not made after all, or not to its end."),
  },
  [
    "endpoint",
    "reason",
    "key",
    "filter",
    "forMs",
    "before",
    "after",
    "jobs",
    "undoes",
    "undoneBy",
    "failed",
  ],
);

/** Of a bucket, or of a queue or an endpoint. */
export const LOGGED_CHANGE: object = { anyOf: [CHANGE, QUEUE_CHANGE] };

export const UNREACHABLE: object = list(
  object({ bucket: text("Undefined for a server."), reason: text("Why.") }, ["bucket"]),
);

/** A bad request, a token that may not, and the like. */
export const PROBLEM: object = {
  description: "What is wrong, and what to do (RFC 9457).",
  content: {
    "application/problem+json": {
      schema: object(
        {
          type: text("about:blank"),
          title: text("The name of the status."),
          status: count("The status."),
          detail: text("What is wrong."),
          code: { ...text("As docs/errors.md explains them."), enum: Object.keys(STATUS_OF_CODE) },
          option: text("The option that is wrong."),
          value: { description: "Its value, without secrets." },
          remedy: text("What to do."),
          retryAfterMs: number("When to try again."),
        },
        ["option", "value", "remedy", "retryAfterMs"],
      ),
    },
  },
};
