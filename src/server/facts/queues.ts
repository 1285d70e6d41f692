/** `/api/v1/queues/…`: what waits in queues and why, their jobs and dead letters; pauses and replays. */
import type { FastifyInstance } from "fastify";
import { reasonOf } from "../../core/describe.ts";
import type { WhoAndWhy } from "../../core/input/who-and-why.ts";
import { JOB_STATES, type Job, type JobState } from "../../queue/job.ts";
import type { Queue } from "../../queue/queue.ts";

import type { Sluice } from "../../sluice.ts";
import { accessOf, assertMaySee } from "../access/access.ts";
import { HttpProblem } from "../problem.ts";
import { queueNamed } from "./named.ts";
import {
  DEAD_LETTER,
  JOB,
  LISTED_QUEUE,
  QUEUE_PAUSE,
  QUEUE_STATUS,
  SCHEDULE,
  WORKER,
} from "./queue-schemas.ts";
import { answer, list, object, PROBLEM, QUEUE_CHANGE, UNREACHABLE } from "./schemas.ts";
import { byHandOf, BY_WHOM, UNDO_ID, type SaidBy } from "./steering.ts";

const VIEW = { needs: "view" } as const;
const OF_QUEUE = { needs: "view", queue: "queue" } as const;
const STEER = { needs: "act", queue: "queue" } as const;
const NAMED = object({ queue: { type: "string", maxLength: 1_024 } });
const WRONG = { 400: PROBLEM, 401: PROBLEM, 403: PROBLEM, 503: PROBLEM };
const COUNT = { type: "integer", minimum: 0 };
const LIMIT = { type: "integer", minimum: 1, maximum: 200, default: 50 };
const DATA = {
  type: "boolean",
  default: false,
  description:
    'Adds the data of the jobs, which may be private: only for tokens of the role "act".',
};
const KEY = { description: "The key of the jobs: its name, or the names of a path." };

interface OfQueue {
  readonly Params: { readonly queue: string };
}

export function queueRoutes(app: FastifyInstance, sluice: Sluice): void {
  listRoutes(app, sluice);
  lookRoutes(app, sluice);
  steeringRoutes(app, sluice);
}

function listRoutes(app: FastifyInstance, sluice: Sluice): void {
  app.get<{ Querystring: { after?: string; limit: number } }>(
    "/api/v1/queues",
    {
      config: VIEW,
      schema: {
        summary: "A page of the queues, each with how it is",
        tags: ["queues"],
        querystring: {
          type: "object",
          additionalProperties: false,
          properties: {
            after: {
              type: "string",
              maxLength: 1_024,
              description: "The next of the page before.",
            },
            limit: { type: "integer", minimum: 1, maximum: 50, default: 20 },
          },
        },
        response: {
          200: answer(
            "The queues by name, and where the next page begins.",
            object(
              { queues: list(LISTED_QUEUE), next: { type: "string" }, unreachable: UNREACHABLE },
              ["next"],
            ),
          ),
          ...WRONG,
        },
      },
    },
    async (request) => {
      const { after, limit } = request.query;
      const overview = await sluice.overview({
        limit,
        brief: true,
        afterQueue: after || undefined,
      });
      const access = accessOf(request);
      const mine = overview.queues.filter(({ name }) => access.mayQueue(name));
      const queues = await Promise.all(mine.map((queue) => withStatus(sluice, queue)));
      const { nextQueue: next } = overview;
      const unreachable = overview.unreachable.filter(({ bucket }) => bucket === undefined);
      return { queues, unreachable, ...(next === undefined ? {} : { next }) };
    },
  );
  app.get(
    "/api/v1/workers",
    {
      config: VIEW,
      schema: {
        summary: "The workers of all processes",
        tags: ["queues"],
        response: { 200: answer("The workers.", object({ workers: list(WORKER) })), ...WRONG },
      },
    },
    async (request) => {
      const access = accessOf(request);
      const { workers } = await sluice.overview({ limit: 1, brief: true });
      return { workers: workers.filter(({ queue }) => access.mayQueue(queue)) };
    },
  );
}

/** A queue that cannot be looked at does not hide the others. */
async function withStatus<Listed extends { readonly name: string }>(
  sluice: Sluice,
  listed: Listed,
): Promise<object> {
  try {
    const queue = await queueNamed(sluice, listed.name);
    return { ...listed, status: await queue.status() };
  } catch (error) {
    return { ...listed, unreachable: reasonOf(error) };
  }
}

function lookRoutes(app: FastifyInstance, sluice: Sluice): void {
  app.get<OfQueue>(
    "/api/v1/queues/:queue",
    {
      config: OF_QUEUE,
      schema: {
        summary:
          "One queue: its jobs by state, the oldest that is due and why it waits, pauses and schedules",
        tags: ["queues"],
        params: NAMED,
        response: {
          200: answer(
            "The queue.",
            object({
              bucket: { type: "string" },
              status: QUEUE_STATUS,
              pauses: list(QUEUE_PAUSE),
              schedules: list(SCHEDULE),
            }),
          ),
          404: PROBLEM,
          ...WRONG,
        },
      },
    },
    async ({ params }) => {
      const queue = await queueNamed(sluice, params.queue);
      const [status, pauses, schedules] = await Promise.all([
        queue.status(),
        queue.paused(),
        queue.schedules(),
      ]);
      return { bucket: queue.bucket.name, status, pauses, schedules };
    },
  );
  app.get<OfQueue & { Querystring: JobsQuery }>(
    "/api/v1/queues/:queue/jobs",
    {
      config: OF_QUEUE,
      schema: {
        summary: "A page of jobs, of all states or of one",
        tags: ["queues"],
        params: NAMED,
        querystring: {
          type: "object",
          additionalProperties: false,
          properties: {
            state: { type: "string", enum: [...JOB_STATES] },
            key: { type: "string", maxLength: 1_024 },
            name: { type: "string", maxLength: 1_024 },
            cursor: { type: "string", maxLength: 4_096 },
            limit: LIMIT,
            data: DATA,
          },
        },
        response: {
          200: answer(
            "The jobs, and the cursor of the next page.",
            object({ jobs: list(JOB), cursor: { type: "string" } }, ["cursor"]),
          ),
          404: PROBLEM,
          ...WRONG,
        },
      },
    },
    async (request) => {
      const { params, query } = request;
      assertMaySee(request, query);
      const { data, limit, ...filter } = query;
      const queue = await queueNamed(sluice, params.queue);
      const { jobs, cursor } = await queue.jobs({ ...filter, limit });
      return { jobs: jobs.map((job) => described(job, data)), ...(cursor && { cursor }) };
    },
  );
  app.get<{ Params: { queue: string; id: string }; Querystring: { data: boolean } }>(
    "/api/v1/queues/:queue/jobs/:id",
    {
      config: OF_QUEUE,
      schema: {
        summary: "One job: where it is, and what it waits for",
        tags: ["queues"],
        params: object({
          queue: { type: "string", maxLength: 1_024 },
          id: { type: "string", maxLength: 1_000 },
        }),
        querystring: { type: "object", additionalProperties: false, properties: { data: DATA } },
        response: {
          200: answer(
            "The job.",
            object({ job: JOB, state: { type: "string" }, why: { type: "object" } }, [
              "state",
              "why",
            ]),
          ),
          404: PROBLEM,
          ...WRONG,
        },
      },
    },
    async (request) => {
      const { params, query } = request;
      assertMaySee(request, query);
      const queue = await queueNamed(sluice, params.queue);
      const job = await queue.job(params.id);
      if (job === undefined)
        throw new HttpProblem(404, `There is no job ${JSON.stringify(params.id)}.`);
      const [state, why] = await Promise.all([job.state(), job.explain()]);
      return { job: described(job, query.data), state, why };
    },
  );
  app.get<OfQueue & { Querystring: { limit: number; data: boolean; reason?: string } }>(
    "/api/v1/queues/:queue/failed",
    {
      config: OF_QUEUE,
      schema: {
        summary: "Dead letters, the newest first",
        tags: ["queues"],
        params: NAMED,
        querystring: {
          type: "object",
          additionalProperties: false,
          properties: {
            reason: { type: "string", maxLength: 1_024, description: "A part of the reason." },
            limit: LIMIT,
            data: DATA,
          },
        },
        response: {
          200: answer("The dead letters.", object({ failed: list(DEAD_LETTER) })),
          404: PROBLEM,
          ...WRONG,
        },
      },
    },
    async (request) => {
      const { params, query } = request;
      assertMaySee(request, query);
      const { data, limit, ...filter } = query;
      const queue = await queueNamed(sluice, params.queue);
      const failed = await queue.failed({ ...filter, limit });
      return { failed: failed.map((job) => (data ? job : withoutData(job))) };
    },
  );
}

/** With the defaults of its schema. */
interface JobsQuery {
  readonly state?: JobState;
  readonly key?: string;
  readonly name?: string;
  readonly cursor?: string;
  readonly limit: number;
  readonly data: boolean;
}

/** What a job is, without its methods; its data and result only if they were asked for. */
function described(job: Job<unknown>, withData: boolean): object {
  const { id, name, key, priority, attempts, attemptsMade, dedupeId } = job;
  const { enqueuedAtMs, dueAtMs, startedAtMs, endedAtMs } = job;
  const facts = { id, name, key, priority, attempts, attemptsMade, dedupeId };
  const times = { enqueuedAtMs, dueAtMs, startedAtMs, endedAtMs };
  return { ...facts, ...times, ...(withData ? { data: job.data, result: job.result } : {}) };
}

function withoutData<Failed extends { readonly data: unknown }>(
  failed: Failed,
): Omit<Failed, "data"> {
  const { data: _hidden, ...facts } = failed;
  return facts;
}

interface Steering {
  readonly action: "pause" | "resume" | "replay" | "undo";
  readonly summary: string;
  readonly body: Readonly<Record<string, object>>;
  readonly make: (
    queue: Queue<unknown>,
    given: Record<string, unknown>,
    byHand: WhoAndWhy,
  ) => Promise<object | void>;
}

const STEERINGS: readonly Steering[] = [
  {
    action: "pause",
    summary: "Starts no jobs, of all keys or of one",
    body: {
      key: KEY,
      forMs: { type: "integer", minimum: 1, description: "For how long. Defaults to no end." },
    },
    make: (queue, given, byHand) => queue.pause({ ...given, ...byHand }),
  },
  {
    action: "resume",
    summary: "Ends a pause, of all keys or of one",
    body: { key: KEY },
    make: (queue, given, byHand) => queue.resume({ ...given, ...byHand }),
  },
  {
    action: "replay",
    summary: "Puts dead letters back: the one of an id, or all that match",
    body: {
      id: { type: "string", description: "One dead letter; the others then do not count." },
      key: KEY,
      name: { type: "string" },
      reason: { type: "string", description: "A part of the reason." },
      code: { type: "string" },
      since: {
        type: "integer",
        minimum: 0,
        description: "Failed then or later, in ms since 1970.",
      },
      limit: { type: "integer", minimum: 1, description: "How many at most. Defaults to all." },
    },
    make: async (queue, { id, ...filter }, byHand) => {
      const which = typeof id === "string" ? id : (filter as Parameters<typeof queue.replay>[0]);
      return { replayed: await queue.replay(which, byHand) };
    },
  },
  {
    action: "undo",
    summary: "Takes back a pause or a resume",
    body: { id: UNDO_ID },
    make: async (queue, given, byHand) => ({ undone: await queue.undo({ ...given, ...byHand }) }),
  },
];

function steeringRoutes(app: FastifyInstance, sluice: Sluice): void {
  for (const { action, summary, body, make } of STEERINGS) {
    app.post<OfQueue & { Body?: Record<string, unknown> & SaidBy }>(
      `/api/v1/queues/:queue/${action}`,
      {
        config: STEER,
        schema: {
          summary,
          tags: ["queues"],
          params: NAMED,
          body: {
            type: "object",
            additionalProperties: false,
            properties: { ...body, ...BY_WHOM },
          },
          response: {
            200: answer(
              "How many jobs were put back, what was taken back, and which pauses hold now.",
              object({ replayed: COUNT, undone: QUEUE_CHANGE, pauses: list(QUEUE_PAUSE) }, [
                "replayed",
                "undone",
              ]),
            ),
            404: PROBLEM,
            409: PROBLEM,
            ...WRONG,
          },
        },
        preValidation: async (request) => void (request.body ??= {}),
      },
      async (request) => {
        const queue = await queueNamed(sluice, request.params.queue);
        const { by, why, ...given } = request.body ?? {};
        const byHand = byHandOf(request, { by, why });
        const done = await make(queue, given, byHand);
        request.log.info({ queue: queue.name, action, by: byHand.by }, "steered by hand");
        return { ...done, pauses: await queue.paused() };
      },
    );
  }
}
