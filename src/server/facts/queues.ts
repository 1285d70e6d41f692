/** `/api/v1/queues/…`: what waits in queues and why, their jobs and dead letters. */
import type { FastifyInstance } from "fastify";
import { reasonOf } from "../../core/describe.ts";
import { JOB_STATES, type Job, type JobState } from "../../queue/job.ts";
import type { Sluice } from "../../sluice/create-sluice.ts";
import { accessOf, assertMaySee } from "../access/access.ts";
import { jobMissing } from "../problem.ts";
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
import { answer, list, object, PROBLEM, UNREACHABLE } from "./schemas.ts";

const VIEW = { needs: "view" } as const;
const OF_QUEUE = { needs: "view", queue: "queue" } as const;
export const NAMED: object = object({ queue: { type: "string", maxLength: 1_024 } });
export const WRONG: Readonly<Record<number, object>> = {
  400: PROBLEM,
  401: PROBLEM,
  403: PROBLEM,
  503: PROBLEM,
};
const LIMIT = { type: "integer", minimum: 1, maximum: 200, default: 50 };
const DATA = {
  type: "boolean",
  default: false,
  description:
    'Adds the data of the jobs, which may be private: only for tokens of the role "act".',
};

export interface OfQueue {
  readonly Params: { readonly queue: string };
}

export function queueRoutes(app: FastifyInstance, sluice: Sluice): void {
  listRoutes(app, sluice);
  lookRoutes(app, sluice);
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
      if (job === undefined) throw jobMissing(queue.name, params.id);
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
