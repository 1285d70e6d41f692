import { expect, it, vi } from "vitest";
import { createBuckets } from "../../../src/sluice/buckets.ts";
import { StoreUnavailableError } from "../../../src/core/errors.ts";
import { createMemoryInsight } from "../../../src/stores/memory/memory-insight.ts";
import { createMemoryStore } from "../../../src/stores/memory/memory-store.ts";
import { fakeTimers } from "../../support/async/fake-timers.ts";

fakeTimers({ leavesNone: true });

it("callers that wait for the store draw again as soon as it responds, in every bucket", async () => {
  const store = createMemoryStore();
  const logger = { warn: vi.fn<() => void>(), error: vi.fn<() => void>() };
  const buckets = createBuckets({
    store,
    insight: createMemoryInsight(),
    logger,
    isRemote: true,
    isCluster: false,
  });
  const open = (name: string) => buckets.open("test", name, { rate: "1/s", onStoreDown: "wait" });
  const draw = vi.spyOn(store, "draw").mockImplementation(async () => {
    throw new StoreUnavailableError("The store is away.");
  });
  const left: string[] = [];
  for (const name of ["a", "b"])
    void open(name)
      .draw()
      .then(() => left.push(name));
  await vi.advanceTimersByTimeAsync(10);

  draw.mockRestore();
  buckets.redraw();
  await vi.advanceTimersByTimeAsync(10);

  expect(left.toSorted()).toEqual(["a", "b"]);
  await buckets.close();
});
