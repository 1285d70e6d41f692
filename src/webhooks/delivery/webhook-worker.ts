import * as z from "zod";
import { assertArgumentCount } from "../../core/input/arguments.ts";
import { LONGEST_MS, readOptional, wholeNumber } from "../../core/input/options.ts";
import type { WorkerOptions } from "../../queue/worker/worker-options.ts";
import type { Worker } from "../../queue/worker/worker.ts";

/** Sends pending messages until it is closed. */
export interface WebhookWorker {
  /** The numbers of attempts in this process that run, and that wait for their slots. */
  status(): { readonly running: number; readonly waiting: number; readonly concurrency: number };
  /**
   * Takes no new attempts, and lets running attempts finish within `closeDeadlineMs`. Other workers
   * retry the unfinished attempts.
   */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

export interface WebhookWorkerParts {
  /** Resolves when the endpoint limits are known. No attempt may start before. */
  readonly ready: () => Promise<void>;
  readonly start: (options: WorkerOptions) => Worker<never, undefined>;
  /** Called with a promise that resolves once the worker has started. */
  readonly onStarting: (starting: Promise<void>) => void;
  readonly onClosed: () => void;
}

const TIME_OR_NONE = wholeNumber(0, LONGEST_MS, "milliseconds").optional();
const OPTIONS = z.strictObject({
  concurrency: wholeNumber(1, 100_000, "attempts").optional(),
  closeDeadlineMs: TIME_OR_NONE,
  patienceMs: TIME_OR_NONE,
  lockMs: wholeNumber(1_000, LONGEST_MS, "milliseconds").optional(),
});
/**
 * The default concurrency. Slow endpoints occupy the worker for as long as their attempts take, and
 * other endpoints must still find room.
 */
const AT_ONCE = 250;

export function createWebhookWorker(given: unknown, parts: WebhookWorkerParts): WebhookWorker {
  const read = readOptional("worker()", OPTIONS, given);
  const { concurrency = AT_ONCE } = read;
  let worker: Worker<never, undefined> | undefined;
  let closing: Promise<void> | undefined;
  const starting = parts.ready().then(() => {
    if (closing === undefined) worker = parts.start({ ...read, concurrency });
  });
  parts.onStarting(starting);

  async function close(): Promise<void> {
    await worker?.close();
    parts.onClosed();
  }

  const methods: WebhookWorker = {
    status() {
      const { running = 0, waiting = 0 } = worker?.status() ?? {};
      return { running, waiting, concurrency };
    },
    async close() {
      await (closing ??= close());
    },
    async [Symbol.asyncDispose]() {
      await (closing ??= close());
    },
  };
  return assertArgumentCount(methods, { throws: ["status"] });
}
