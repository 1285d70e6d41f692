import { afterEach, describe, expect, it, vi } from "vitest";
import { setRetryDelay } from "../../../../src/queue/worker/attempt.ts";
import { fillDefaults, type StoredOptions } from "../../../../src/queue/bullmq/stored-job.ts";
import { RetryAfter } from "../../../../src/queue/worker/outcome.ts";

afterEach(() => {
  vi.restoreAllMocks();
});

/** The delay that BullMQ is told after so many failed attempts. */
function delayAfter(
  attemptsMade: number,
  {
    thrown,
    askedMs,
    random = 0.5,
    ...given
  }: {
    thrown?: unknown;
    askedMs?: number;
    random?: number;
  } & StoredOptions = {},
): number {
  vi.spyOn(Math, "random").mockReturnValue(random);
  const opts: StoredOptions = { ...given };
  fillDefaults({ opts });
  setRetryDelay({ opts, attemptsMade }, thrown, askedMs);
  const { type, delay, jitter } = opts.backoff as { type: string; delay: number; jitter?: number };
  expect({ type, jitter }).toEqual({ type: "fixed", jitter: undefined });
  return delay;
}

describe("the delay of a retry", () => {
  it("is a random part of a time that doubles with each attempt", () => {
    const delays = [0, 1, 2, 3].map((made) => delayAfter(made));

    expect(delays).toEqual([500, 1_000, 2_000, 4_000]);
  });

  it("can be zero, and is below the whole time", () => {
    expect(delayAfter(0, { random: 0 })).toBe(0);
    expect(delayAfter(0, { random: 0.999_999 })).toBeLessThan(1_000);
  });

  it("is an hour at most, unless the job says otherwise, at any attempt", () => {
    expect(delayAfter(999)).toBe(1_800_000);
    expect(delayAfter(999, { sluice: { maxBackoffMs: 10_000 } })).toBe(5_000);
  });

  it("is at least the retry time of the downstream", () => {
    expect(delayAfter(0, { askedMs: 3_000 })).toBe(3_000);
    expect(delayAfter(3, { askedMs: 3_000 })).toBe(4_000);
  });

  it("is exactly the time of RetryAfter", () => {
    expect(delayAfter(3, { thrown: new RetryAfter(250), askedMs: 3_000 })).toBe(250);
  });
});
