import { isDeepStrictEqual } from "node:util";
import { createHash } from "node:crypto";
import { InvalidOptionError } from "../../core/errors.ts";
import type { QueuedJob } from "../../queue/enqueue/job-handle.ts";
import type { EnqueueOptions } from "../../queue/options.ts";
import { HttpProblem } from "../problem.ts";

/** A request that may be sent again, and stores its jobs once. */
export interface Once {
  readonly dedupeIdOf: (index: number | undefined) => string;
  /** @throws {@link HttpProblem} 422 when the first request of this key had other data. */
  assertSame(job: QueuedJob<unknown>, data: unknown): void;
}

/** How long an `Idempotency-Key` holds. */
const HOLDS_MS = 24 * 3_600_000;
const LONGEST_KEY = 255;

/** @throws {@link InvalidOptionError} when it is no key. */
export function readOnce(header: string | string[] | undefined): Once | undefined {
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
  const digest = createHash("sha256").update(key).digest("base64url");
  return {
    dedupeIdOf: (index) => `http-${digest}${index === undefined ? "" : `-${index}`}`,
    assertSame(job, data) {
      // Of a job that is no longer kept, the data is what was given.
      if (job.isNew || isDeepStrictEqual(job.data, data)) return;
      throw new HttpProblem(
        422,
        `This Idempotency-Key came with other data before, for job ${job.id}; give each request its own.`,
      );
    },
  };
}

/** The options of a job whose request may come again. */
export function withOnce(
  once: Once | undefined,
  options: EnqueueOptions,
  index?: number,
): EnqueueOptions {
  if (once === undefined) return options;
  if (options.dedupeId !== undefined) {
    throw new InvalidOptionError({
      where: "the request",
      option: "dedupeId",
      value: options.dedupeId,
      remedy: "give it, or the header Idempotency-Key",
    });
  }
  return { ...options, dedupeId: once.dedupeIdOf(index), dedupeMs: HOLDS_MS } as EnqueueOptions;
}
