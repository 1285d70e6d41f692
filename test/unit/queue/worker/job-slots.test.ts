import { describe, expect, it, vi } from "vitest";
import { createJobSlots } from "../../../../src/queue/worker/job-start.ts";
import type { Job } from "../../../../src/queue/job.ts";
import type { OwnedBucket } from "../../../../src/throttle/bucket.ts";
import { ownClock as clock } from "../../../support/jobs/own-clock.ts";
import type { Wait } from "../../../../src/throttle/waiting/wait.ts";

const job = { id: "1", key: "k", data: undefined, priority: "normal" } as unknown as Job<unknown>;

/** The slots of a worker whose application cannot tell the limits of a key. */
function openSlots() {
  const drawForJob = (): never => {
    throw new Error("the table of tiers is away");
  };
  const onKeyError = vi.fn<() => void>();
  const bucket = { drawForJob } as unknown as OwnedBucket;
  const logger = { warn: onKeyError, error() {} };
  const worker = {
    queue: "jobs",
    bucket,
    clock,
    patienceMs: 250,
    weightsOf: () => undefined,
    logger,
  };
  return { slots: createJobSlots(worker), onKeyError };
}

describe("a job whose key's limits cannot be computed", () => {
  it("stops waiting when its worker closes", async () => {
    const { slots, onKeyError } = openSlots();

    const waits = Object.assign(new Set<Wait>(), { isLeaving: false });
    const drawn = slots.draw(job, waits);
    await vi.waitFor(() => expect(onKeyError).toHaveBeenCalled());
    slots.close();
    for (const wait of waits) wait.cancel("the worker is closed");

    expect(await drawn).toBeUndefined();
  });

  it("stops waiting when its lock is lost", async () => {
    const { slots, onKeyError } = openSlots();

    const waits = Object.assign(new Set<Wait>(), { isLeaving: false });
    const drawn = slots.draw(job, waits);
    await vi.waitFor(() => expect(onKeyError).toHaveBeenCalled());
    waits.isLeaving = true;
    for (const wait of waits) wait.cancel("its lock was lost");

    expect(await drawn).toBeUndefined();
  });
});
