import { describe, expect, it, vi } from "vitest";
import type { BucketOptions } from "../../../../src/throttle/bucket/bucket-options.ts";
import { fakeTimers } from "../../../support/async/fake-timers.ts";
import { createFarStore } from "../../../support/draws/far-store.ts";
import { createTestBucket } from "../../../support/draws/test-bucket.ts";

const advance = fakeTimers({ leavesNone: true });

describe("a process to which a reply takes its time", () => {
  it.each<[string, number, number, BucketOptions]>([
    ["20 ms, under a limit that all share", 20, 1_000, { rate: "1000/s" }],
    ["60 ms, under a limit that all share", 60, 1_000, { rate: "1000/s" }],
    ["60 ms, under a limit of its key", 60, 1_000, { perKey: { rate: "1000/s" } }],
    ["60 ms, under both", 60, 10, { rate: "1000/s", perKey: { rate: "10/s" } }],
  ])("%s: starts calls at the whole rate", async (_which, tookMs, perSecond, options) => {
    const store = createFarStore({ thereMs: tookMs / 2, backMs: tookMs / 2 });
    const { bucket } = createTestBucket(options, { store });
    const left: number[] = [];

    const drawing = Array.from({ length: perSecond }, async () => {
      await bucket.draw({ key: "a" });
      left.push(performance.now());
    });
    await advance(3_000);
    await Promise.all(drawing);

    const share = (1_000 - 1_000 / perSecond) / (left.at(-1)! - left[0]!);
    expect(share).toBeGreaterThan(0.99);
    await bucket.close();
  });

  it("names the limit for as long as it holds calls back", async () => {
    const store = createFarStore({ thereMs: 60, backMs: 60 });
    const { bucket } = createTestBucket({ rate: "40/s" }, { store });
    const named = new Set<string | undefined>();

    const drawing = Array.from({ length: 100 }, () => bucket.draw());
    await advance(500);
    for (let looks = 0; looks < 100; looks += 1) {
      await advance(10);
      named.add(bucket.takeActivity().limitedBy);
    }

    expect([...named]).toEqual(["40/s"]);
    await advance(5_000);
    await Promise.all(drawing);
    await bucket.close();
  });

  it("asks for all keys whose time will have come there", async () => {
    const keys = Array.from({ length: 10 }, (_, number) => `key ${number}`);
    const store = createFarStore({ thereMs: 30, backMs: 30 });
    const { bucket } = createTestBucket({ rate: "1000/s", perKey: { rate: "10/s" } }, { store });
    const left: number[] = [];

    const drawing = Array.from({ length: 10 * keys.length }, async (_, call) => {
      await bucket.draw({ key: keys[call % keys.length]! });
      left.push(performance.now());
    });
    await advance(3_000);
    await Promise.all(drawing);

    expect(900 / (left.at(-1)! - left[0]!)).toBeGreaterThan(0.75);
    await bucket.close();
  });

  it("asks no sooner than its turn comes there", async () => {
    const store = createFarStore({ thereMs: 10, backMs: 20 });
    const draw = vi.spyOn(store, "draw");
    const { bucket } = createTestBucket({ rate: "2/s" }, { store });

    const drawing = Promise.all(Array.from({ length: 4 }, () => bucket.draw()));
    await advance(3_000);
    await drawing;

    // One for each slot, as if it were near.
    expect(draw).toHaveBeenCalledTimes(4);
    await bucket.close();
  });
});
