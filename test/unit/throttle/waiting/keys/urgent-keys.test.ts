import { expect, it, vi } from "vitest";
import { createMemoryStore } from "../../../../../src/stores/memory/memory-store.ts";
import { fakeTimers } from "../../../../support/async/fake-timers.ts";
import { createTestBucket } from "../../../../support/draws/test-bucket.ts";

const advance = fakeTimers();
/** Several times as many as one script serves. */
const KEYS = Array.from({ length: 40 }, (_, number) => `key ${number}`);

it("a key of which an urgent call comes is asked for before all others that wait", async () => {
  const store = createMemoryStore();
  const draw = vi.spyOn(store, "draw");
  const { bucket } = createTestBucket({ perKey: { rate: "1000/s" } }, { store });

  const calls = KEYS.map((key) => bucket.draw({ key }));
  calls.push(bucket.draw({ key: KEYS.at(-1)!, priority: "critical" }));
  await advance(100);
  await Promise.all(calls);

  expect(draw.mock.calls[0]![0].slotRequests[0]).toMatchObject({
    scopes: [{ key: KEYS.at(-1) }],
    rank: 0,
  });
  await bucket.close();
});
