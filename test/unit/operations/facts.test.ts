import type { Sluice } from "sluice";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { createFacts } from "../../../src/operations/facts.ts";

beforeEach(() => vi.useFakeTimers({ toFake: ["setTimeout", "performance", "Date"] }));
afterEach(() => vi.useRealTimers());

/** Longer than a result of a quick read is kept. */
const STALE_MS = 5_000;
const OVERVIEW = {
  buckets: [],
  queues: [{ name: "charges", bucket: "stripe" }],
  replicas: [],
  unreachable: [],
};

/** Facts of one queue with three queued jobs. A test may replace what Redis replies. */
function openFacts() {
  const overview = vi.fn(async (): Promise<object> => OVERVIEW);
  const counts = vi.fn(async () => ({ waiting: 3 }));
  const findQueue = vi.fn(async () => ({ counts }));
  const facts = createFacts({ overview, findQueue } as unknown as Sluice);
  return { facts, overview, counts, findQueue };
}

const never = (): Promise<never> => new Promise(() => {});

it("a look opens no queue", async () => {
  const { facts, findQueue } = openFacts();

  const { queues } = await facts.look();

  expect(queues).toHaveLength(1);
  expect(findQueue).not.toHaveBeenCalled();
});

it("a count that hangs gives its callers the last counts after half a second", async () => {
  const { facts, counts } = openFacts();
  await facts.queued();
  counts.mockImplementation(never);
  vi.advanceTimersByTime(STALE_MS);
  const settled = vi.fn();

  void facts.queued().then(settled);
  await vi.advanceTimersByTimeAsync(499);
  expect(settled).not.toHaveBeenCalled();
  await vi.advanceTimersByTimeAsync(1);

  expect(settled).toHaveBeenCalledWith(new Map([["charges", 3]]));
});

it("a count that fails late leaves no old counts, so the next caller gets the next error", async () => {
  const { facts, overview } = openFacts();
  await facts.queued();
  vi.advanceTimersByTime(STALE_MS);
  // Drops the last look, so that the count below fails with the look that it waits for.
  overview.mockRejectedValueOnce(new Error("refused"));
  await expect(facts.look()).rejects.toThrow("refused");
  const failAfterMs = (ms: number) =>
    overview.mockImplementationOnce(
      () => new Promise((_, reject) => setTimeout(() => reject(new Error("too late")), ms)),
    );

  failAfterMs(600);
  const first = facts.queued();
  await vi.advanceTimersByTimeAsync(600);
  failAfterMs(600);
  const next = facts.queued();
  next.catch(() => {});
  await vi.advanceTimersByTimeAsync(600);

  expect(await first).toEqual(new Map([["charges", 3]]));
  await expect(next).rejects.toThrow("too late");
});
