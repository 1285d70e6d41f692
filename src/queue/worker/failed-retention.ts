/**
 * How long dead letters stay: for good, unless the queue's `keepFailed` says otherwise. Then each worker removes the
 * others as done ones are removed (`lua/queue/ends/failed-forget.lua`), and logs how many.
 */
import type { Logger } from "../../core/logger.ts";
import type { KeptFailed } from "../../core/stores/queue/store.ts";
import { createRetention, type Retention } from "./retention.ts";

export interface FailedRetentionParts {
  readonly queue: string;
  readonly kept: {
    readonly now: { readonly keepFailed: KeptFailed | undefined };
    current(): Promise<{ readonly keepFailed: KeptFailed | undefined }>;
  };
  /** Removes those that are no longer kept; how many. */
  readonly forget: (kept: KeptFailed) => Promise<number>;
  readonly onError: (error: Error) => void;
  readonly logger: Logger;
}

/** At most one line is logged in this time, with the number of all that were removed. */
const LOG_MS = 10_000;

export function createFailedRetention({
  queue,
  kept,
  forget,
  onError,
  logger,
}: FailedRetentionParts): Retention {
  let removed = 0;
  let loggedAtMs = -Infinity;
  let timer: NodeJS.Timeout | undefined;

  function log(): void {
    clearTimeout(timer);
    timer = undefined;
    loggedAtMs = performance.now();
    const facts = { queue, removed, keepFailed: kept.now.keepFailed };
    const text = `Removed ${removed} dead letters of queue "${queue}" that its keepFailed keeps no longer.`;
    removed = 0;
    logger.warn(facts, text);
  }

  async function forgetSome(): Promise<void> {
    const { keepFailed } = await kept.current();
    if (keepFailed === undefined) return;
    removed += await forget(keepFailed);
    if (removed === 0 || timer !== undefined) return;
    const waitMs = loggedAtMs + LOG_MS - performance.now();
    if (waitMs <= 0) log();
    else timer = setTimeout(log, waitMs).unref();
  }

  const retention = createRetention(
    forgetSome,
    onError,
    () => kept.now.keepFailed?.forMs ?? Infinity,
  );
  return {
    note: () => retention.note(),
    async close() {
      await retention.close();
      if (timer !== undefined) log();
    },
  };
}
