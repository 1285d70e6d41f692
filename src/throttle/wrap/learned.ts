import { reasonOf } from "../../core/describe.ts";
import { toRatio } from "../../core/policy/ratios.ts";
import type { Logger } from "../../core/logger.ts";
import type { RatioSample, Store } from "../../core/store.ts";

/** What the calls of a bucket have shown, over all replicas: how much they took of what they were estimated to take. */
export interface Learned {
  /** The mean of taken ÷ estimated of each name. Waits for the store at its first use; never rejects. */
  means(): Promise<ReadonlyMap<string, number>>;
  /** Takes one more call in, in the background. A ratio that is no number from 0 is ignored. */
  learn(name: string, ratio: number): void;
  /** Resolves when the store has all samples, or could not take them. */
  settled(): Promise<void>;
}

/** How old the means of a process may be that learns nothing itself. */
const STALE_MS = 10_000;
/** Samples that wait while the store answers; more are dropped, since a mean needs few. */
const MOST_WAITING = 1_000;
const LONGEST_NAME = 256;

export function createLearned(
  store: Pick<Store, "learn">,
  bucket: string,
  logger: Logger,
): Learned {
  let means: ReadonlyMap<string, number> = new Map();
  let readAtMs = -Infinity;
  let waiting: RatioSample[] = [];
  let asking: Promise<void> | undefined;

  async function ask(): Promise<void> {
    do {
      const seen = waiting;
      waiting = [];
      try {
        means = inUnits(await store.learn({ bucket, seen }));
      } catch (error) {
        const problem = "Could not learn from what calls took; estimates stay as they are.";
        logger.warn({ bucket, reason: reasonOf(error) }, problem);
        waiting = [];
      }
      readAtMs = performance.now();
    } while (waiting.length > 0);
  }

  function askOnce(): Promise<void> {
    return (asking ??= ask().finally(() => (asking = undefined)));
  }

  return {
    async means() {
      const isFirst = readAtMs === -Infinity;
      if (performance.now() >= readAtMs + STALE_MS) void askOnce();
      if (isFirst) await askOnce();
      return means;
    },
    learn(name, ratio) {
      if (!(ratio >= 0) || name.length > LONGEST_NAME) return;
      if (waiting.length < MOST_WAITING) waiting.push({ name, ratio: toRatio(ratio) });
      void askOnce();
    },
    async settled() {
      await asking;
    },
  };
}

function inUnits(millionths: ReadonlyMap<string, number>): ReadonlyMap<string, number> {
  return new Map([...millionths].map(([name, mean]) => [name, mean / 1_000_000]));
}
