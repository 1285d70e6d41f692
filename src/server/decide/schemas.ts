import type { EnqueueOptions } from "../../queue/options.ts";
import type { CallOutcome } from "../../throttle/slot/slot.ts";
import { STATUS_OF_CODE } from "../problem.ts";

const KEY = {
  description: 'A tenant, account or endpoint: "acme", or a path of up to three names.',
  anyOf: [
    { type: "string", minLength: 1, maxLength: 256 },
    { type: "array", minItems: 1, maxItems: 3, items: { type: "string", minLength: 1 } },
  ],
};
const KEYS = {
  description: "Keys side by side, by their names.",
  type: "object",
  additionalProperties: { type: "string" },
};
const COST = {
  description: "How much it takes: a number of calls, or by unit, such as { tokens: 800 }.",
  anyOf: [{ type: "number" }, { type: "object", additionalProperties: { type: "number" } }],
};
const SETTLED = {
  description: "The actual cost of the call, by unit, such as { tokens: 512 }.",
  type: "object",
  additionalProperties: { type: "number" },
};
const OUTCOME = {
  enum: ["done", "dropped", "ignored"] satisfies readonly CallOutcome[],
  description:
    "How the call ended, for a concurrency limit that adapts to latency. dropped: it timed out or its target was overloaded. ignored: its latency says nothing about the load. Defaults to done.",
};
const PRIORITY = { enum: ["critical", "high", "normal", "low"] };
const MS = { type: "integer", minimum: 1, maximum: 2_147_483_647 };
const MAX_WAIT_MS = {
  ...MS,
  description: "The longest wait. Then 429; at once if no slot can be free in time.",
};
const HOLD_MS = {
  type: "integer",
  minimum: 1,
  maximum: 86_400_000,
  description:
    "How long the slot can be settled and released, and the longest that its lease lasts unless it is renewed. Defaults to 60,000, and to 600,000 with `settles` if the slot has no lease.",
};

const SETTLES = {
  type: "boolean",
  description: "Whether the cost is settled later. Budgets then only reserve it.",
};
const WHAT = { key: KEY, keys: KEYS, cost: COST };
const HELD = { ...WHAT, priority: PRIORITY, holdMs: HOLD_MS, settles: SETTLES };

function object(properties: object, required?: readonly string[]): object {
  return {
    type: "object",
    properties,
    additionalProperties: false,
    ...(required && { required }),
  };
}

/** Makes a request body optional if none of its fields is required. */
function optional(schema: object): object {
  return { ...schema, type: ["object", "null"] };
}

export const SLOT: object = {
  type: "object",
  required: ["bucket", "atMs", "waitedMs", "hasLease"],
  properties: {
    id: {
      type: "string",
      description:
        "Identifies the slot for settling and releasing. Absent if there is nothing to settle or release.",
    },
    bucket: { type: "string" },
    atMs: { type: "number", description: "The slot, in ms since 1970, on Redis' clock." },
    waitedMs: { type: "number" },
    hasLease: { type: "boolean" },
    member: { type: "string", description: "In a pool, the member that the call uses." },
    heldForMs: { type: "number" },
  },
};

const LIMIT: object = {
  type: "object",
  properties: {
    name: { type: "string" },
    unit: { type: "string" },
    scope: { type: "string" },
    capacity: { type: "number" },
    windowMs: { type: "number" },
    remaining: { type: "number" },
    resetAfterMs: { type: "number" },
    retryAfterMs: { type: "number" },
    refusalStatus: {
      type: "integer",
      description: "The status of a refusal by this budget. Absent for other limits.",
    },
  },
};

export const MANY_DRAWN: object = {
  type: "object",
  properties: {
    results: {
      type: "array",
      items: {
        type: "object",
        properties: { slot: SLOT, problem: { type: "object", additionalProperties: true } },
      },
    },
  },
};

export const DECISION: object = {
  type: "object",
  properties: {
    allowed: { type: "boolean" },
    remaining: { type: "number", description: "Absent without limits." },
    resetAfterMs: { type: "number" },
    slot: SLOT,
    limits: { type: "array", items: LIMIT },
  },
};

export const PROBLEM: object = {
  description: "RFC 9457",
  content: {
    "application/problem+json": {
      schema: {
        type: "object",
        additionalProperties: true,
        properties: {
          type: { type: "string" },
          title: { type: "string" },
          status: { type: "integer" },
          detail: { type: "string" },
          code: { type: "string", enum: Object.keys(STATUS_OF_CODE) },
        },
      },
    },
  },
};
export const BUCKET_PARAMS: object = object({ bucket: { type: "string" } }, ["bucket"]);
export const SLOT_PARAMS: object = object({ id: { type: "string" } }, ["id"]);
export const DRAW: object = optional(object({ ...HELD, maxWaitMs: MAX_WAIT_MS }));
export const TRY: object = optional(object({ ...WHAT, holdMs: HOLD_MS }));
export const DRAW_MANY: object = object(
  {
    mode: {
      enum: ["all", "each"],
      description:
        "all: all slots or none, with one response when the last slot is free. each: every draw by itself. Defaults to each.",
    },
    maxWaitMs: MAX_WAIT_MS,
    draws: {
      type: "array",
      minItems: 1,
      maxItems: 1_000,
      items: object({ bucket: { type: "string" }, ...HELD, maxWaitMs: MAX_WAIT_MS }, ["bucket"]),
    },
  },
  ["draws"],
);
export const SETTLE: object = object({ cost: SETTLED }, ["cost"]);
export const RELEASE: object = optional(object({ cost: SETTLED, outcome: OUTCOME }));
export const RENEW: object = object({ holdMs: HOLD_MS }, ["holdMs"]);
export const QUEUE_PARAMS: object = object({ queue: { type: "string" } }, ["queue"]);
/** The body of a request that enqueues a job. */
export const ENQUEUE_BODY: object = object(
  {
    data: { description: "The data for the handler: any JSON." },
    key: KEY,
    name: { type: "string" },
    cost: COST,
    priority: PRIORITY,
    delayMs: { type: "integer", minimum: 0 },
    at: {
      description: "The earliest start: ms since 1970, or an ISO 8601 date and time.",
      anyOf: [{ type: "number" }, { type: "string", format: "date-time" }],
    },
    maxWaitMs: MS,
    id: { type: "string" },
    dedupeId: { type: "string" },
    dedupe: {
      oneOf: [
        { enum: ["first", "last", "again"] },
        {
          type: "object",
          properties: { mode: { const: "debounce" }, waitMs: MS, maxDelayMs: MS },
          required: ["mode", "waitMs"],
          additionalProperties: false,
        },
      ],
    },
    cancelRunning: { type: "boolean" },
    keep: { enum: ["newest", "oldest"] },
    keepAtMost: { type: "integer", minimum: 1, maximum: 1_000 },
    dedupeMs: MS,
    after: {
      type: "array",
      maxItems: 10_000,
      description: "Jobs that must end before this one is due.",
      items: object({ queue: { type: "string" }, id: { type: "string" } }, ["queue", "id"]),
    },
    onParentFailure: { enum: ["fail", "skip", "run"] },
    attempts: { type: "integer", minimum: 1 },
    backoff: object({ baseMs: MS, maxMs: MS }),
    timeoutMs: MS,
    every: MS,
    cron: { type: "string" },
    timeZone: { type: "string" },
    missed: { enum: ["skip", "once"] },
    overlap: { type: "boolean" },
  } satisfies Record<keyof EnqueueOptions | "data", object>,
  ["data"],
);
export const JOBS_TOLD: object = {
  type: "object",
  required: ["jobs"],
  properties: {
    jobs: {
      type: "array",
      items: {
        type: "object",
        properties: { id: { type: "string" }, isNew: { type: "boolean" } },
      },
    },
  },
};
