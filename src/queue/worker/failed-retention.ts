/**
 * How long dead letters stay: for good, unless the queue's `keepFailed` says otherwise. Then each worker removes the
 * others as done ones are removed (`lua/queue/ends/failed-forget.lua`), and logs how many.
 */
import type { Logger } from "../../core/logger.ts";
import type { KeptFailed } from "../../core/stores/queue/store.ts";
import { createRetention, type Retention } from "./retention.ts";

export interface FailedRetentionParts {
  readonly queue: string;
  readonly kept: KeptFailed | undefined;
  /** Removes those that are no longer kept; how many. */
  readonly forget: (kept: KeptFailed) => Promise<number>;
  readonly onError: (error: Error) => void;
  readonly logger: Logger;
}

/** At most one line is logged in this time, with the number of all that were removed. */
const LOG_MS = 10_000;

const NOTHING: Retention = { note: () => {}, close: async () => {} };

export function createFailedRetention(parts: FailedRetentionParts): Retention {
  const { kept } = parts;
  return kept === undefined ? NOTHING : createKept(parts, kept);
}

function createKept(
  { queue, forget, onError, logger }: FailedRetentionParts,
  kept: KeptFailed,
): Retention {
  let removed = 0;
  let loggedAtMs = -Infinity;
  let timer: NodeJS.Timeout | undefined;

  function log(): void {
    clearTimeout(timer);
    timer = undefined;
    loggedAtMs = performance.now();
    const facts = { queue, removed, keepFailed: kept };
    const text = `Removed ${removed} dead letters of queue "${queue}" that its keepFailed keeps no longer.`;
    removed = 0;
    logger.warn(facts, text);
  }

  async function forgetSome(): Promise<void> {
    removed += await forget(kept);
    if (removed === 0 || timer !== undefined) return;
    const waitMs = loggedAtMs + LOG_MS - performance.now();
    if (waitMs <= 0) log();
    else timer = setTimeout(log, waitMs).unref();
  }

  const retention = createRetention(forgetSome, onError, kept.forMs);
  return {
    note: () => retention.note(),
    async close() {
      await retention.close();
      if (timer !== undefined) log();
    },
  };
}
