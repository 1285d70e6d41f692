import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { InvalidOptionError } from "../../core/errors.ts";
import type { RequestNotes } from "../../core/stores/insight/requests.ts";
import type { QueuedJob } from "../../queue/enqueue/job-handle.ts";
import type { EnqueueOptions } from "../../queue/options.ts";
import type { FailedFilter } from "../../queue/manage/dead-letters.ts";
import { accessOf, assertMaySee } from "../access/access.ts";
import { HttpProblem, jobMissing, readBeside } from "../problem.ts";
import type { Found } from "./found.ts";
import { readOnce, withOnce } from "./once.ts";
import {
  FAILED_QUERY,
  JOB_QUERY,
  JOB,
  JOB_PARAMS,
  JOB_TOLD,
  JOBS_TOLD,
  PROBLEM,
  QUEUE_PARAMS,
  REPLAY,
} from "./schemas.ts";

/** A job as a request has it. */
type GivenJob = { readonly data: unknown } & {
  readonly [Option in keyof EnqueueOptions]?: EnqueueOptions[Option] | string;
};

interface OfQueue {
  readonly Params: { readonly queue: string };
}

interface OfJob {
  readonly Params: { readonly queue: string; readonly id: string };
  readonly Querystring: { readonly data?: boolean };
}

export function jobRoutes(
  app: FastifyInstance,
  { found, notes }: { readonly found: Found; readonly notes: RequestNotes },
): void {
  const readJson = app.getDefaultJsonParser("error", "error");
  const readLine = (request: FastifyRequest, line: string): unknown => {
    let read: unknown;
    // It calls back at once.
    void readJson(request, line, (error, value) => {
      if (error) throw error;
      read = value;
    });
    return read;
  };
  for (const type of NDJSON) {
    app.addContentTypeParser(
      type,
      { parseAs: "string" },
      async (request: FastifyRequest, text: string) =>
        jobsOfLines(text, (line) => readLine(request, line)),
    );
  }

  async function enqueue(
    request: FastifyRequest<OfQueue & { readonly Body: GivenJob | readonly GivenJob[] }>,
    reply: FastifyReply,
  ): Promise<object> {
    const { queue: name } = request.params;
    const queue = await found.queue(name);
    const header = request.headers["idempotency-key"];
    const once = readOnce({ notes, queue: name, header });
    const { body } = request;
    const store = (
      data: readonly unknown[],
      work: () => Promise<QueuedJob<unknown>[]>,
    ): Promise<QueuedJob<unknown>[]> =>
      once === undefined ? work() : once.store({ body, data, work });
    void reply.code(202);
    if (Array.isArray(body)) {
      const given = body as readonly GivenJob[];
      const options = given.map((job, index) => withOnce(once, optionsOf(job), index));
      const data = given.map((job) => job.data);
      const jobs = await store(data, () =>
        queue.enqueueMany(data, (_data, index) => options[index]!),
      );
      return { jobs: jobs.map(({ id, isNew }) => ({ id, isNew })) };
    }
    const given = body as GivenJob;
    const options = withOnce(once, optionsOf(given));
    const { data } = given;
    const [job] = await store([data], async () => [await queue.enqueue(data, options)]);
    const { id, isNew } = job!;
    void reply.header("location", pathOf(name, id));
    return { id, ...(await readBeside(request, told(job!))), isNew };
  }

  async function jobOf({ queue: name, id }: OfJob["Params"]): Promise<QueuedJob<unknown>> {
    const queue = await found.queue(name);
    const job = await queue.job(id);
    if (job !== undefined) return job;
    throw jobMissing(name, id);
  }

  const ofQueue = { params: QUEUE_PARAMS };
  const ofJob = { params: JOB_PARAMS };
  const answers = (code: number, schema: object): object => ({
    response: { [code]: schema, default: PROBLEM },
  });
  const DONE = { type: "object", additionalProperties: true };

  app.post<OfQueue & { Body: GivenJob | readonly GivenJob[] }>(
    "/v1/queues/:queue/jobs",
    {
      config: { needs: "enqueue", queue: "queue" },
      schema: {
        summary: "Enqueues one job, or one for each line",
        ...ofQueue,
        body: {
          content: {
            "application/json": { schema: JOB },
            ...Object.fromEntries(
              NDJSON.map((type) => [type, { schema: { type: "array", items: JOB } }]),
            ),
          },
        },
        ...answers(202, { anyOf: [JOB_TOLD, JOBS_TOLD] }),
      },
    },
    enqueue,
  );
  app.get<OfJob>(
    "/v1/queues/:queue/jobs/:id",
    {
      config: { needs: "enqueue", queue: "queue" },
      schema: {
        summary: "Where a job is, and when it is expected to start",
        ...ofJob,
        querystring: JOB_QUERY,
        ...answers(200, JOB_TOLD),
      },
    },
    async (request) => {
      const job = await jobOf(request.params);
      const more = request.query.data === true ? { data: job.data, result: job.result } : {};
      return { ...(await told(job)), ...more };
    },
  );
  app.post<OfJob>(
    "/v1/queues/:queue/jobs/:id/cancel",
    {
      config: { needs: "act", queue: "queue" },
      schema: { summary: "Cancels a job", ...ofJob, ...answers(200, DONE) },
    },
    async ({ params }) => {
      const job = await jobOf(params);
      return { id: job.id, cancelled: await job.cancel() };
    },
  );
  app.get<OfQueue & { Querystring: FailedFilter & { readonly data?: boolean } }>(
    "/v1/queues/:queue/dead-letters",
    {
      config: { needs: "view", queue: "queue" },
      schema: {
        summary: "The jobs that have failed for good, the newest first",
        ...ofQueue,
        querystring: FAILED_QUERY,
        ...answers(200, DONE),
      },
    },
    async (request) => {
      const { params, query } = request;
      const { data: shows = false, ...filter } = query;
      assertMaySee(request, { data: shows });
      const queue = await found.queue(params.queue);
      const failed = await queue.failed(filter);
      const jobs = failed.map(({ data, ...facts }) => (shows ? { ...facts, data } : facts));
      return { jobs };
    },
  );
  app.post<OfQueue & { Body: FailedFilter & { readonly id?: string } }>(
    "/v1/queues/:queue/dead-letters/replay",
    {
      config: { needs: "act", queue: "queue" },
      schema: {
        summary: "Puts failed jobs back into the queue: one by id, or all that match ({} for all)",
        ...ofQueue,
        body: REPLAY,
        ...answers(200, DONE),
      },
    },
    async (request) => {
      const { params, body } = request;
      const queue = await found.queue(params.queue);
      const { name: by } = accessOf(request);
      const { id, ...filter } = body;
      if (id !== undefined && Object.keys(filter).length > 0) {
        const remedy = "give an id, or a filter";
        throw new InvalidOptionError({ where: "replay", option: "id", value: id, remedy });
      }
      if (id === undefined) return { replayed: await queue.replay(filter, { by }) };
      // One job by its id is the caller's own business, as for the method.
      const replayed = await queue.replay(id);
      if (replayed === 0 && (await queue.job(id)) === undefined) throw jobMissing(queue.name, id);
      return { replayed };
    },
  );
}

function optionsOf({ data: _data, at, ...options }: GivenJob): EnqueueOptions {
  const time = typeof at === "string" ? { at: new Date(at) } : at === undefined ? {} : { at };
  return { ...options, ...time } as EnqueueOptions;
}

/** A job as its status tells it. */
async function told(job: QueuedJob<unknown>): Promise<object> {
  const [state, eta, waits] = await Promise.all([job.state(), job.eta(), job.explain()]);
  const { id, name, key, priority, attempts, attemptsMade, enqueuedAtMs, dueAtMs } = job;
  const startsInMs = eta?.startsInMs;
  return {
    id,
    // Of one that is done and no longer kept, only the id is known.
    state: state ?? "gone",
    name,
    key,
    priority,
    attempts,
    attemptsMade,
    enqueuedAtMs,
    dueAtMs,
    startedAtMs: job.startedAtMs,
    endedAtMs: job.endedAtMs,
    position: eta?.position,
    startsInMs,
    startsAtMs: startsInMs === undefined ? undefined : Math.round(Date.now() + startsInMs),
    // Why no start can be promised.
    noStart: eta?.reason,
    waitsFor: waits?.waitsFor,
  };
}

function pathOf(queue: string, id: string): string {
  return `/v1/queues/${encodeURIComponent(queue)}/jobs/${encodeURIComponent(id)}`;
}

/** The types of a body that has JSON on each line. */
const NDJSON = ["application/x-ndjson", "application/jsonl"] as const;

const MOST_LINES = 10_000;

/**
 * What the lines say; empty ones are left out. `read` is what reads the body of other requests.
 *
 * @throws {@link HttpProblem} 400 when one is no JSON that is taken, and names it; 413 for too many.
 */
function jobsOfLines(text: string, read: (line: string) => unknown): readonly unknown[] {
  // Files of Windows begin with a mark of their encoding.
  const lines = text.replace(/^\ufeff/, "").split("\n");
  if (lines.length > MOST_LINES + 1) {
    throw new HttpProblem(
      "ERR_BODY_TOO_LARGE",
      `There are more than ${MOST_LINES} lines; send them in parts.`,
    );
  }
  return lines.flatMap((line, index) => {
    if (line.trim() === "") return [];
    try {
      return [read(line)];
    } catch {
      const detail = `Line ${index + 1} is no JSON, or has a field such as __proto__; give one job on each line.`;
      throw new HttpProblem("ERR_BAD_REQUEST", detail);
    }
  });
}
