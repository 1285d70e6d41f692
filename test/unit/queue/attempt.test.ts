import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { LeaseLostError, StoreUnavailableError } from "../../../src/core/errors.ts";
import { createMemoryStore } from "../../../src/memory/memory-store.ts";
import { runAttempt } from "../../../src/queue/worker/attempt.ts";
import { createJobContext, type JobContext } from "../../../src/queue/worker/context.ts";
import type { Job, Stored } from "../../../src/queue/job.ts";
import { createTestBucket } from "../../support/test-bucket.ts";

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

const job = { id: "1", data: "x", priority: "normal" } as unknown as Job<string>;

/** Runs a job whose slot was drawn so much earlier, of a bucket that cannot renew leases of 30 s; its signal, as the handler finds it. */
async function signalAtStart(afterMs: number): Promise<AbortSignal> {
  const store = createMemoryStore();
  vi.spyOn(store, "renew").mockRejectedValue(new StoreUnavailableError("away"));
  const { bucket } = createTestBucket({ concurrency: 1 }, { store });
  const slot = await bucket.draw();
  await vi.advanceTimersByTimeAsync(afterMs);
  const handler = async (_job: Job<string>, { signal }: JobContext): Promise<AbortSignal> => signal;
  const parts = { queue: "jobs", bucket, handler, logger: { warn() {}, error() {} } };
  const context = createJobContext(job.id, 1);
  const signal = await runAttempt(parts, { stored: {} as Stored<string>, job, context, slot });
  await bucket.close();
  return signal!;
}

describe("a job that begins on a slot with a lease", () => {
  it("is told at once when the lease was lost before that", async () => {
    const { reason } = await signalAtStart(27_000);

    expect(reason).toBeInstanceOf(LeaseLostError);
  });

  it("is told nothing while the lease holds", async () => {
    const { aborted } = await signalAtStart(26_000);

    expect(aborted).toBe(false);
  });
});
