import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { createPayloads } from "../../../../src/core/codec.ts";
import { LeaseLostError, StoreUnavailableError } from "../../../../src/core/errors.ts";
import { createMemoryStore } from "../../../../src/stores/memory/memory-store.ts";
import { runAttempt } from "../../../../src/queue/worker/attempt.ts";
import {
  createJobContext,
  type Handler,
  type JobContext,
} from "../../../../src/queue/worker/context.ts";
import { HandlerTimeoutError } from "../../../../src/queue/errors.ts";
import type { Job } from "../../../../src/queue/job.ts";
import type { Stored } from "../../../../src/queue/bullmq/stored-job.ts";
import type { DrawnSlot } from "../../../../src/throttle/slot/slot.ts";
import { rejectionOf } from "../../../support/async/rejection.ts";
import { createTestBucket } from "../../../support/draws/test-bucket.ts";

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

const downstream = {
  failed: async () => undefined,
  verdict: async () => undefined,
  succeeded: () => {},
  undecided: 0,
  close: () => {},
};
const payloads = createPayloads("jobs");
const pass = { passes: true, isProbe: false, startedAtMs: 0 } as const;
const job = { id: "1", data: "x", priority: "normal" } as unknown as Job<string>;

/** Runs a job whose slot was drawn so much earlier, of a bucket that cannot renew leases of 30 s; its signal, as the handler finds it. */
async function signalAtStart(afterMs: number): Promise<AbortSignal> {
  const store = createMemoryStore();
  vi.spyOn(store, "renew").mockRejectedValue(new StoreUnavailableError("away"));
  const { bucket } = createTestBucket({ concurrency: 1 }, { store });
  const slot = (await bucket.draw()) as DrawnSlot;
  await vi.advanceTimersByTimeAsync(afterMs);
  const handler = async (_job: Job<string>, { signal }: JobContext): Promise<AbortSignal> => signal;
  const logger = { warn() {}, error() {} };
  const parts = { queue: "jobs", bucket, downstream, handler, payloads, logger };
  const context = createJobContext({ jobId: job.id, token: "t", attempt: 1 });
  const signal = await runAttempt(parts, {
    stored: {} as Stored<string>,
    job,
    context,
    slot,
    pass,
  });
  await bucket.close();
  return signal!;
}

describe("a job that begins on a slot with a lease", () => {
  it("is notified immediately when the lease was lost before that", async () => {
    const { reason } = await signalAtStart(27_000);

    expect(reason).toBeInstanceOf(LeaseLostError);
  });

  it("is not notified while the lease lasts", async () => {
    const { aborted } = await signalAtStart(26_000);

    expect(aborted).toBe(false);
  });
});

describe("a handler with 50 ms", () => {
  async function start(handler: Handler<string, string>) {
    const { bucket } = createTestBucket({ rate: "1000/s" });
    const slot = (await bucket.draw()) as DrawnSlot;
    const timersBefore = vi.getTimerCount();
    const logger = { warn() {}, error() {} };
    const context = createJobContext({ jobId: job.id, token: "t", attempt: 1 });
    const parts = { queue: "jobs", bucket, downstream, handler, payloads, logger, timeoutMs: 50 };
    const stored = { opts: {}, attemptsMade: 1 } as Stored<string>;
    const attempt = { stored, job, context, slot, pass };
    const timersLeft = (): number => vi.getTimerCount() - timersBefore;
    return { running: runAttempt(parts, attempt), signal: context.signal, timersLeft };
  }

  it("that takes longer fails, its signal is aborted, and its result is dropped", async () => {
    let reject: (error: Error) => void = () => {};
    const promise = new Promise<string>((_resolve, fail) => {
      reject = fail;
    });
    const cancel = vi.fn();
    const { running, signal } = await start(() => Object.assign(promise, { cancel }));
    const failure = rejectionOf(running);
    await vi.advanceTimersByTimeAsync(49);
    expect(signal.aborted).toBe(false);

    await vi.advanceTimersByTimeAsync(1);

    expect(signal.reason).toBeInstanceOf(HandlerTimeoutError);
    expect(await failure).toHaveProperty(
      "message",
      expect.stringMatching(/^The handler took longer than 50 ms/),
    );
    expect(cancel).not.toHaveBeenCalled();
    reject(new Error("too late"));
    await vi.advanceTimersByTimeAsync(1);
  });

  it.each([
    ["returns a promise", () => Promise.resolve("done")],
    ["returns no promise", () => "done"],
  ])("that %s in time gives its result, and leaves no timer", async (_how, handler) => {
    const { running, signal, timersLeft } = await start(handler);

    expect(await running).toBe("done");
    expect(signal.aborted).toBe(false);
    expect(timersLeft()).toBe(0);
  });

  it("that fails in time keeps its error, and leaves no timer", async () => {
    const error = new Error("no such account");
    const { running, signal, timersLeft } = await start(() => Promise.reject(error));

    expect(await rejectionOf(running)).toBe(error);
    expect(signal.aborted).toBe(false);
    expect(timersLeft()).toBe(0);
  });
});
