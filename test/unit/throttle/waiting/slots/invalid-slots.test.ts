import { expect, it, vi } from "vitest";
import type { Store } from "../../../../../src/core/store.ts";
import { createMemoryStore } from "../../../../../src/stores/memory/memory-store.ts";
import { deferred } from "../../../../support/async/deferred.ts";
import { createTestBucket } from "../../../../support/draws/test-bucket.ts";
import { fakeTimers } from "../../../../support/async/fake-timers.ts";

fakeTimers({ leavesNone: true });

/** A bucket that holds a slot 50 ms from now, and the same one at another replica. */
async function holdingASlot(change: (store: Store) => Partial<Store>) {
  const memory = createMemoryStore();
  const store: Store = { ...memory, ...change(memory) };
  const policy = { rate: "20/s" };
  const { bucket } = createTestBucket(policy, { store });
  const other = createTestBucket(policy, { store: memory }).bucket;
  const left: number[] = [];
  const call = (): void =>
    void bucket.draw().then(
      () => left.push(performance.now()),
      () => undefined,
    );
  call();
  call();
  await vi.advanceTimersByTimeAsync(1);
  expect(left).toHaveLength(1);
  return { bucket, other, left, call };
}

it("a slot from before a pause is not used once a reply reports it, though its notification was lost", async () => {
  const { bucket, other, left, call } = await holdingASlot(() => ({ listen: () => undefined }));
  await other.pause({ forMs: 60_000 });

  call();
  await vi.advanceTimersByTimeAsync(1_000);

  expect(left).toHaveLength(1);
  await Promise.all([bucket.close(), other.close()]);
});

it("a slot from before a pause is not used once its notification arrives, though the store is silent", async () => {
  let isSilent = false;
  const silent = deferred();
  const { bucket, other, left } = await holdingASlot((store) => ({
    draw: (request) =>
      isSilent ? silent.promise.then(() => store.draw(request)) : store.draw(request),
  }));
  isSilent = true;

  await other.pause({ forMs: 60_000 });
  await vi.advanceTimersByTimeAsync(1_000);

  expect(left).toHaveLength(1);
  silent.resolve();
  await Promise.all([bucket.close(), other.close()]);
});

it("a slot of an endpoint is not used once its customer is paused", async () => {
  const store = createMemoryStore();
  const policy = { perKey: [{ rate: "20/s" }, { rate: "1000/s" }] } as const;
  const [bucket, other] = [1, 2].map(() => createTestBucket(policy, { store }).bucket);
  const left: number[] = [];
  for (let call = 0; call < 2; call++) {
    void bucket!.draw({ key: ["acme", "e1"] }).then(
      () => left.push(performance.now()),
      () => undefined,
    );
  }
  await vi.advanceTimersByTimeAsync(1);
  const before = left.length;

  await other!.pause({ key: "acme", forMs: 60_000 });
  await vi.advanceTimersByTimeAsync(1_000);

  expect([before, left.length]).toEqual([1, 1]);
  await Promise.all([bucket!.close(), other!.close()]);
});
