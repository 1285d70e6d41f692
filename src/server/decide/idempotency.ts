import { createHash } from "node:crypto";
import { CostTooLargeError, InvalidOptionError } from "../../core/errors.ts";
import type { RequestNotes } from "../../core/stores/insight/requests.ts";
import type { QueuedJob } from "../../queue/enqueue/job-handle.ts";
import type { EnqueueOptions } from "../../queue/options.ts";
import { HttpProblem } from "../problem.ts";

/** A request that clients may repeat. Its jobs are stored only once. */
export interface IdempotentRequest {
  readonly dedupeIdOf: (index: number | undefined) => string;
  /**
   * Stores the jobs of a request if its content matches that of the first request with the same
   * key.
   *
   * @throws {@link HttpProblem} 422 when the first request had other content. Nothing is stored
   * then. There is one exception: if the record of the first request is lost but its jobs still
   * exist, jobs that the first request did not contain are stored.
   */
  store(request: JobsRequest): Promise<QueuedJob<unknown>[]>;
}

interface JobsRequest {
  readonly body: unknown;
  /** The data of each job. */
  readonly data: readonly unknown[];
  readonly work: () => Promise<QueuedJob<unknown>[]>;
}

/** How long an `Idempotency-Key` stays valid. */
const HOLDS_MS = 24 * 3_600_000;
/** How long a request is remembered. It must outlast the jobs of the last matching request. */
const NOTED_MS = HOLDS_MS + 3_600_000;
const LONGEST_KEY = 255;

interface IdempotencyParts {
  readonly notes: RequestNotes;
  readonly queue: string;
  readonly header: string | string[] | undefined;
}

/** @throws {@link InvalidOptionError} when the header is not a valid key. */
export function readIdempotencyKey({
  notes,
  queue,
  header,
}: IdempotencyParts): IdempotentRequest | undefined {
  if (header === undefined) return undefined;
  const key = String(header).replace(/^"(.*)"$/, "$1");
  if (key === "" || key.length > LONGEST_KEY) {
    throw new InvalidOptionError({
      where: "the headers of the request",
      option: "Idempotency-Key",
      value: key,
      remedy: `give 1 to ${LONGEST_KEY} characters, such as a UUID`,
    });
  }
  const name = digestOf(key);
  return {
    dedupeIdOf: (index) => `http-${name}${index === undefined ? "" : `-${index}`}`,
    async store({ body, data, work }) {
      const asking = { queue, name, asked: digestOf(textOf(body)) };
      const noted = await notes.noteRequest(asking, NOTED_MS);
      if (noted === "other") throw otherBefore();
      try {
        const jobs = await work();
        // Compare the data if there was no record of the request. Its jobs may exist nevertheless:
        // the record was evicted, or an older version stored the jobs. If there was a record, the
        // data may differ after an update, or because a schema transformed the data.
        const isOther = (job: QueuedJob<unknown>, index: number): boolean =>
          !job.isNew && textOf(job.data) !== textOf(data[index]);
        if (noted === "first" && jobs.some(isOther)) throw otherBefore();
        return jobs;
      } catch (error) {
        // Nothing was stored, so a corrected request may use the same key.
        const isRefused =
          error instanceof InvalidOptionError ||
          error instanceof CostTooLargeError ||
          error instanceof HttpProblem;
        if (isRefused && noted === "first") await notes.forgetRequest(asking).catch(() => {});
        throw error;
      }
    },
  };
}

function otherBefore(): HttpProblem {
  return new HttpProblem(
    "ERR_IDEMPOTENCY_KEY_USED",
    "This Idempotency-Key came with another request before; give each request its own.",
  );
}

/** Adds a `dedupeId` to the options, so that a repeated request does not store its jobs again. */
export function withDedupeId(
  request: IdempotentRequest | undefined,
  options: EnqueueOptions,
  index?: number,
): EnqueueOptions {
  if (request === undefined) return options;
  if (options.dedupeId !== undefined) {
    throw new InvalidOptionError({
      where: "the request",
      option: "dedupeId",
      value: options.dedupeId,
      remedy: "give it, or the header Idempotency-Key",
    });
  }
  return { ...options, dedupeId: request.dedupeIdOf(index), dedupeMs: HOLDS_MS } as EnqueueOptions;
}

function digestOf(text: string): string {
  return createHash("sha256").update(text).digest("base64url");
}

/**
 * Serializes a value as JSON with sorted fields. Avoids recursion, because a request of 20 kB may
 * have 10,000 levels.
 */
function textOf(root: unknown): string {
  const written: string[] = [];
  const rest: ({ readonly text: string } | { readonly value: unknown })[] = [{ value: root }];
  for (let next = rest.pop(); next !== undefined; next = rest.pop()) {
    if ("text" in next) written.push(next.text);
    else if (typeof next.value !== "object" || next.value === null) {
      written.push(JSON.stringify(next.value));
    } else {
      const isList = Array.isArray(next.value);
      const fields = Object.entries(next.value);
      if (!isList) fields.sort(([a], [b]) => (a < b ? -1 : 1));
      written.push(isList ? "[" : "{");
      rest.push({ text: isList ? "]" : "}" });
      // Push the fields in reverse order, because the top of the stack is written first.
      for (const [index, [name, value]] of [...fields.entries()].toReversed()) {
        const comma = index === 0 ? "" : ",";
        rest.push({ value }, { text: isList ? comma : `${comma}${JSON.stringify(name)}:` });
      }
    }
  }
  return written.join("");
}
