import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import type { RequestNotes } from "../../core/stores/insight/requests.ts";
import type { QueuedJob } from "../../queue/enqueue/job-handle.ts";
import type { EnqueueOptions } from "../../queue/options.ts";
import { assertQueue } from "../access/access.ts";
import { statusOfJob } from "../../operations/jobs.ts";
import { JOB_STATUS } from "../../operations/shapes.ts";
import { HttpProblem, readAfterChange } from "../problem.ts";
import type { FoundBuckets } from "./found-buckets.ts";
import { readIdempotencyKey, withDedupeId } from "./idempotency.ts";
import { ENQUEUE_BODY, JOBS_TOLD, PROBLEM, QUEUE_PARAMS } from "./schemas.ts";

/** A job in a request. */
type GivenJob = { readonly data: unknown } & {
  readonly [Option in keyof EnqueueOptions]?: EnqueueOptions[Option] | string;
};

interface OfQueue {
  readonly Params: { readonly queue: string };
}

export function jobRoutes(
  app: FastifyInstance,
  { found, notes }: { readonly found: FoundBuckets; readonly notes: RequestNotes },
): void {
  const readJson = app.getDefaultJsonParser("error", "error");
  const readLine = (request: FastifyRequest, line: string): unknown => {
    let read: unknown;
    // The JSON parser calls back synchronously, so the value is set when it returns.
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
    const idempotent = readIdempotencyKey({ notes, queue: name, header });
    const { body } = request;
    // A job learns the results of the jobs that it awaits.
    for (const { after = [] } of [body].flat() as { after?: readonly { queue: string }[] }[]) {
      for (const parent of after) assertQueue(request, parent.queue);
    }
    const store = (
      data: readonly unknown[],
      work: () => Promise<QueuedJob<unknown>[]>,
    ): Promise<QueuedJob<unknown>[]> =>
      idempotent === undefined ? work() : idempotent.store({ body, data, work });
    void reply.code(202);
    if (Array.isArray(body)) {
      const given = body as readonly GivenJob[];
      const options = given.map((job, index) => withDedupeId(idempotent, optionsOf(job), index));
      const data = given.map((job) => job.data);
      const jobs = await store(data, () =>
        queue.enqueueMany(data, (_data, index) => options[index]!),
      );
      return { jobs: jobs.map(({ id, isNew }) => ({ id, isNew })) };
    }
    const given = body as GivenJob;
    const options = withDedupeId(idempotent, optionsOf(given));
    const { data } = given;
    const [job] = await store([data], async () => [await queue.enqueue(data, options)]);
    const { id, isNew } = job!;
    void reply.header("location", pathOf(name, id));
    return { id, ...(await readAfterChange(request, statusOfJob(job!))), isNew };
  }

  app.post<OfQueue & { Body: GivenJob | readonly GivenJob[] }>(
    "/v1/queues/:queue/jobs",
    {
      config: { needs: "enqueue", queue: "queue" },
      schema: {
        summary: "Enqueues one job, or one for each line",
        params: QUEUE_PARAMS,
        body: {
          content: {
            "application/json": { schema: ENQUEUE_BODY },
            ...Object.fromEntries(
              NDJSON.map((type) => [type, { schema: { type: "array", items: ENQUEUE_BODY } }]),
            ),
          },
        },
        response: { 202: { anyOf: [JOB_STATUS, JOBS_TOLD] }, default: PROBLEM },
      },
    },
    enqueue,
  );
}

function optionsOf({ data: _data, at, ...options }: GivenJob): EnqueueOptions {
  const time = typeof at === "string" ? { at: new Date(at) } : at === undefined ? {} : { at };
  return { ...options, ...time } as EnqueueOptions;
}

function pathOf(queue: string, id: string): string {
  return `/v1/queues/${encodeURIComponent(queue)}/jobs/${encodeURIComponent(id)}`;
}

/** Content types with one JSON value per line. */
const NDJSON = ["application/x-ndjson", "application/jsonl"] as const;

const MOST_LINES = 10_000;

/**
 * Parses the job on each line and skips empty lines. `read` parses a line like the body of a JSON
 * request.
 *
 * @throws {@link HttpProblem} 400 with the number of the line that is invalid JSON; 413 for too many lines.
 */
function jobsOfLines(text: string, read: (line: string) => unknown): readonly unknown[] {
  // Remove a byte order mark, with which files from Windows may begin.
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
      const detail = `Line ${index + 1} is not valid JSON, or has a field such as __proto__. Write one job on each line.`;
      throw new HttpProblem("ERR_BAD_REQUEST", detail);
    }
  });
}
