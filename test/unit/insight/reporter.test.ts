import { expect, it, vi } from "vitest";
import { ChangedError } from "../../../src/core/errors.ts";
import { createReporter } from "../../../src/insight/reporter.ts";
import { createMemoryInsight } from "../../../src/stores/memory/memory-insight.ts";
import type { OwnedBucket } from "../../../src/throttle/bucket.ts";
import { fakeTimers } from "../../support/async/fake-timers.ts";

fakeTimers();

it.each([
  [new ChangedError({ bucket: "stripe", since: 1, generation: 2 }), false],
  [new Error("WRONGTYPE"), true],
])(
  "logs why an override could not be ended, unless its bucket kept changing: %s",
  async (error, isReported) => {
    const warnings: string[] = [];
    const logger = { warn: (_facts: object, text: string) => void warnings.push(text), error() {} };
    const asked: unknown[] = [];
    const bucket = {
      async expire(override: unknown) {
        asked.push(override);
        throw error;
      },
    } as unknown as OwnedBucket;
    const override = { bucket: "stripe", id: "1-1" };
    const insight = {
      ...createMemoryInsight(),
      report: async () => ({ over: [override], isNew: false }) as never,
    };
    const reporter = createReporter({
      insight,
      logger,
      replica: "r",
      version: "1",
      buckets: () => [],
      find: async () => bucket,
      queues: () => [],
      workers: () => [],
    } as unknown as Parameters<typeof createReporter>[0]);

    reporter.onActivity();
    await vi.advanceTimersByTimeAsync(60_000);
    await reporter.close();

    expect(asked.length).toBeGreaterThan(0);
    expect(warnings.length > 0).toBe(isReported);
  },
);
