/** The schemas of what is answered of queues. A field that is not known is left out, never `null`. */
import { list, object, SET_BY } from "./schemas.ts";

const TEXT = { type: "string" };
const NUMBER = { type: "number" };
const COUNT = { type: "integer", minimum: 0 };
const ENDLESS = { anyOf: [{ type: "number" }, { const: "forever" }] };
const KEY = { anyOf: [TEXT, list(TEXT)] };

const WHY = object({ waitsFor: TEXT, limit: TEXT, sinceMs: NUMBER, untilMs: ENDLESS }, [
  "limit",
  "untilMs",
]);

export const LANES: object = {
  ...list(object({ key: KEY, jobs: COUNT, weight: NUMBER, asideMs: ENDLESS })),
  description: "The keys of which most jobs wait, up to 20.",
};

export const SETTINGS_SEEN: object = {
  ...list(
    object({ name: TEXT, value: { anyOf: [NUMBER, TEXT] }, setBy: TEXT, override: SET_BY }, [
      "override",
    ]),
  ),
  description: 'What can be set, and what did: "override", "rules" or "code".',
};

export const QUEUE_STATUS: object = object(
  {
    name: TEXT,
    generation: {
      ...COUNT,
      description:
        "Grows with each change by hand; send it with one that is based on what you saw.",
    },
    jobs: object({ waiting: COUNT, active: COUNT, delayed: COUNT, done: COUNT, failed: COUNT }),
    oldest: object({ id: TEXT, key: KEY, waitingMs: NUMBER, why: WHY }, ["key", "why"]),
    unexplainedMs: {
      ...NUMBER,
      description: "How much of the wait of the oldest no limit, pause or turn explains.",
    },
    goneInMs: { ...ENDLESS, description: "Until the backlog is gone, if nothing changes." },
    reason: { ...TEXT, description: "Why goneInMs is not known." },
    lanes: LANES,
    lanesInAll: { ...COUNT, description: "How many keys have jobs that wait." },
    workers: COUNT,
    places: COUNT,
    workersWanted: COUNT,
    donePerSecond: NUMBER,
    failedPerSecond: NUMBER,
    failureRate: NUMBER,
    handlerMs: NUMBER,
    settings: SETTINGS_SEEN,
    rulesVersion: { ...NUMBER, description: "Of the rules, if they say anything of the queue." },
  },
  ["oldest", "goneInMs", "reason", "handlerMs", "rulesVersion"],
);

export const LISTED_QUEUE: object = object(
  {
    name: TEXT,
    bucket: TEXT,
    workers: COUNT,
    places: COUNT,
    running: COUNT,
    status: QUEUE_STATUS,
    unreachable: { ...TEXT, description: "Why its status is not known." },
  },
  ["status", "unreachable"],
);

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
});

export const QUEUE_PAUSE: object = object({ key: KEY, forMs: ENDLESS }, ["key"]);

export const SCHEDULE: object = object(
  {
    dedupeId: TEXT,
    every: NUMBER,
    cron: TEXT,
    timeZone: TEXT,
    nextAtMs: NUMBER,
    nextRunsAtMs: list(NUMBER),
    missed: COUNT,
    last: object({ id: TEXT, startedAtMs: NUMBER, endedAtMs: NUMBER, outcome: TEXT }, [
      "endedAtMs",
      "outcome",
    ]),
  },
  ["every", "cron", "timeZone", "last"],
);

export const JOB: object = object(
  {
    id: TEXT,
    name: TEXT,
    key: KEY,
    priority: TEXT,
    attempts: COUNT,
    attemptsMade: COUNT,
    dedupeId: TEXT,
    enqueuedAtMs: NUMBER,
    dueAtMs: NUMBER,
    startedAtMs: NUMBER,
    endedAtMs: NUMBER,
    data: { description: "Only if it was asked for." },
    result: { description: "Only if it was asked for, and the job is done." },
  },
  ["name", "key", "dedupeId", "startedAtMs", "endedAtMs", "data", "result"],
);

export const DEAD_LETTER: object = object(
  {
    id: TEXT,
    name: TEXT,
    key: KEY,
    reason: TEXT,
    failedAtMs: NUMBER,
    attempts: COUNT,
    stack: TEXT,
    data: { description: "Only if it was asked for." },
  },
  ["name", "key", "stack", "data"],
);
