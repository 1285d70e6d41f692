const MOST_JOBS = 1_000;
const MOST_LINES = 100;
const RECEIPT = {
  type: "string",
  minLength: 1,
  maxLength: 16_384,
  description: "The receipt that came with the job.",
};
const LOCK_MS = {
  type: "integer",
  minimum: 1_000,
  maximum: 86_400_000,
  description:
    "How long the jobs stay with the client unless it extends or ends them. Then they run again. Defaults to 30,000.",
};
const COST = {
  description: "The actual cost of the call, by unit, such as { tokens: 512 }.",
  type: "object",
  additionalProperties: { type: "number" },
};

function object(properties: object, required: readonly string[] = []): object {
  return { type: "object", properties, required, additionalProperties: false };
}

/** Accepts the fields of one job, or several jobs as `{ jobs: […] }`. `work-routes.ts` refuses both together. */
function oneOrMany(properties: object, required: readonly string[]): object {
  const one = object(properties, required);
  const jobs = {
    type: "array",
    minItems: 1,
    maxItems: MOST_JOBS,
    items: one,
    description: "Several jobs in place of one, each with these fields.",
  };
  return { ...object({ ...properties, jobs }), anyOf: [{ required }, { required: ["jobs"] }] };
}

export const TAKE: object = {
  ...object({
    max: {
      type: "integer",
      minimum: 1,
      maximum: MOST_JOBS,
      description: "The most jobs in the response. Defaults to 1.",
    },
    waitMs: {
      type: "integer",
      minimum: 0,
      maximum: 60_000,
      description: "How long to wait for a job that may start. Defaults to 0, which looks once.",
    },
    lockMs: LOCK_MS,
    worker: {
      type: "string",
      minLength: 1,
      maxLength: 256,
      description:
        "The name of the client, which operators see. Defaults to the name of the token, or to the address.",
    },
  }),
  type: ["object", "null"],
};

export const TAKEN: object = {
  type: "object",
  required: ["jobs"],
  properties: {
    jobs: {
      type: "array",
      items: {
        type: "object",
        additionalProperties: true,
        required: ["receipt", "id", "data", "attempt", "attempts", "lockMs"],
        properties: {
          receipt: {
            ...RECEIPT,
            description: "Proves that its holder may extend and end the job.",
          },
          id: { type: "string" },
          name: { type: "string" },
          data: { description: "The data of the job: any JSON." },
          key: { description: "The key of the job: a name, or a path of names." },
          cost: { description: "The cost of the attempt. Absent for 1 call." },
          priority: { type: "string" },
          attempt: { type: "integer", description: "1 for the first attempt." },
          attempts: { type: "integer", description: "How often the job is attempted at most." },
          attemptsMade: { type: "integer" },
          timeoutMs: {
            type: "integer",
            description: "The time limit that the producer set. The attempt fails after it.",
          },
          dedupeId: { type: "string" },
          enqueuedAtMs: { type: "number" },
          dueAtMs: { type: "number" },
          lockMs: { type: "integer" },
          slot: {
            type: "object",
            properties: {
              bucket: { type: "string" },
              atMs: { type: "number", description: "The slot, in ms since 1970." },
              hasLease: { type: "boolean" },
            },
          },
        },
      },
    },
  },
};

export const EXTEND: object = {
  ...object({
    receipt: RECEIPT,
    receipts: {
      type: "array",
      minItems: 1,
      maxItems: MOST_JOBS,
      items: RECEIPT,
      description: "Several receipts in place of one.",
    },
    lockMs: LOCK_MS,
  }),
  anyOf: [{ required: ["receipt"] }, { required: ["receipts"] }],
};

const STATE_OF_LOCK = {
  enum: ["held", "lost", "cancelled"],
  description:
    "lost: the lock has expired, so another client may run the job. cancelled: the work is no longer needed.",
};

/** What became of each of the given jobs, in their order. */
export const STATES: object = {
  type: "object",
  required: ["jobs"],
  properties: {
    jobs: {
      type: "array",
      items: { type: "object", properties: { id: { type: "string" }, state: STATE_OF_LOCK } },
    },
  },
};

export const PROGRESS: object = oneOrMany(
  {
    receipt: RECEIPT,
    value: {
      description:
        "How far the job is: any JSON of up to 10,000 characters. Only the latest value is kept.",
    },
  },
  ["receipt", "value"],
);

export const LOG: object = oneOrMany(
  {
    receipt: RECEIPT,
    lines: {
      type: "array",
      minItems: 1,
      maxItems: MOST_LINES,
      items: { type: "string" },
      description:
        "Log lines. Redis keeps the last 100 lines of a job, and the first 1,000 characters of each.",
    },
  },
  ["receipt", "lines"],
);

export const COMPLETE: object = oneOrMany(
  {
    receipt: RECEIPT,
    result: { description: "The result of the job: any JSON of up to 1,000,000 characters." },
    cost: COST,
  },
  ["receipt"],
);

export const FAIL: object = oneOrMany(
  {
    receipt: RECEIPT,
    error: {
      description:
        "Why the attempt failed. A status of 429 cools the bucket down; a code such as ECONNREFUSED counts for its breaker.",
      anyOf: [
        { type: "string", minLength: 1 },
        object(
          {
            message: { type: "string", minLength: 1 },
            code: { type: "string", minLength: 1 },
            status: { type: "integer", minimum: 100, maximum: 599 },
          },
          ["message"],
        ),
      ],
    },
    retryAfterMs: {
      type: "integer",
      minimum: 0,
      maximum: 2_147_483_647,
      description: "When to try again. Defaults to the job's backoff.",
    },
    discard: {
      type: "boolean",
      description: "Whether the job becomes a dead letter at once. Defaults to false.",
    },
    cost: COST,
  },
  ["receipt", "error"],
);

const ENDED_ONE = {
  type: "object",
  properties: {
    id: { type: "string" },
    state: {
      enum: ["done", "retried", "failed"],
      description: "retried: the job runs again later. failed: it is a dead letter.",
    },
    problem: { type: "object", additionalProperties: true },
  },
};

export const ENDED: object = {
  ...ENDED_ONE,
  properties: { ...ENDED_ONE.properties, results: { type: "array", items: ENDED_ONE } },
};
