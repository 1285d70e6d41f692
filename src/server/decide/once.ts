import { createHash } from "node:crypto";
import { CostTooLargeError, InvalidOptionError } from "../../core/errors.ts";
import type { RequestNotes } from "../../core/stores/insight/requests.ts";
import type { EnqueueOptions } from "../../queue/options.ts";
import { HttpProblem } from "../problem.ts";

/** A request that may be sent again, and stores its jobs once. */
export interface Once {
  readonly dedupeIdOf: (index: number | undefined) => string;
  /**
   * Stores the jobs of a request, as long as it asks for what the first one of its key did.
   *
   * @throws {@link HttpProblem} 422 when that one asked for something else; then nothing is stored.
   */
  store<Stored>(body: unknown, work: () => Promise<Stored>): Promise<Stored>;
}

/** How long an `Idempotency-Key` holds. */
const HOLDS_MS = 24 * 3_600_000;
/** Longer than the jobs of the first request are known. */
const NOTED_MS = HOLDS_MS + 3_600_000;
const LONGEST_KEY = 255;

interface OnceParts {
  readonly notes: RequestNotes;
  readonly queue: string;
  readonly header: string | string[] | undefined;
}

/** @throws {@link InvalidOptionError} when it is no key. */
export function readOnce({ notes, queue, header }: OnceParts): Once | undefined {
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
    async store(body, work) {
      const asking = { queue, name, asked: digestOf(JSON.stringify(body, inOrder)) };
      if ((await notes.noteRequest(asking, NOTED_MS)) !== asking.asked) {
        throw new HttpProblem(
          422,
          "This Idempotency-Key came with another request before; give each request its own.",
        );
      }
      try {
        return await work();
      } catch (error) {
        // It stored nothing, and may be sent again with what is mended.
        const isRefused = error instanceof InvalidOptionError || error instanceof CostTooLargeError;
        if (isRefused) await notes.forgetRequest(asking).catch(() => {});
        throw error;
      }
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

function digestOf(text: string): string {
  return createHash("sha256").update(text).digest("base64url");
}

/** The same request may be written in another order of its fields. */
function inOrder(_name: string, value: unknown): unknown {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  return Object.fromEntries(Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1)));
}
