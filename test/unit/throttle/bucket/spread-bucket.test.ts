import slotOf from "cluster-key-slot";
import { afterEach, describe, expect, it, vi } from "vitest";
import {
  ClosedError,
  InvalidOptionError,
  LineFullError,
  StoreUnavailableError,
} from "../../../../src/core/errors.ts";
import type { Store } from "../../../../src/core/store.ts";
import { createMemoryStore } from "../../../../src/stores/memory/memory-store.ts";
import type { BucketOptions } from "../../../../src/throttle/bucket/bucket-options.ts";
import type { OwnedBucket } from "../../../../src/throttle/bucket.ts";
import { jobSlotOf, runWithJobSlot } from "../../../../src/throttle/slot/job-slot.ts";
import { createPartStores, partOf } from "../../../../src/throttle/bucket/part-stores.ts";
import { rejectionOf } from "../../../support/async/rejection.ts";
import { createTestBucket } from "../../../support/draws/test-bucket.ts";
import { fakeTimers } from "../../../support/async/fake-timers.ts";

fakeTimers({ leavesNone: true });
const opened: OwnedBucket[] = [];
afterEach(async () => {
  await Promise.all(opened.splice(0).map((bucket) => bucket.close()));
});

function spread(options: BucketOptions, store: Store = createMemoryStore()) {
  const created = createTestBucket(options, { store, isSpread: true });
  opened.push(created.bucket);
  return created;
}

/** Two replicas of one bucket, each with a policy of its own if two are given. */
function twoReplicas(first: BucketOptions, second: BucketOptions = first, store?: Store) {
  const shared = store ?? createMemoryStore();
  return [spread(first, shared).bucket, spread(second, shared).bucket] as const;
}

/** Three keys of three parts. */
const [A, B, C] = ["tenant 1", "tenant 2", "tenant 3"];

/** A store that notes where it is asked to draw. */
function watched(store: Store = createMemoryStore()) {
  const places: string[] = [];
  const draw: Store["draw"] = (request) => {
    places.push(request.bucket);
    return store.draw(request);
  };
  return { store: { ...store, draw }, places };
}

describe("the keys of a spread bucket", () => {
  it("are dealt out to parts, each always to the same one", async () => {
    const { store, places } = watched();
    const [here, there] = twoReplicas({ perKey: { rate: "10/s", burst: 5 } }, undefined, store);
    const keys = Array.from({ length: 200 }, (_, index) => `key ${index}`);

    for (const key of keys) await here.tryDraw({ key });
    const first = places.splice(0);
    for (const key of keys) await there.tryDraw({ key });

    expect(places).toEqual(first);
    expect(new Set(first).size).toBeGreaterThan(25);
    for (const place of first) expect(place).toMatch(/^test:\d+$/);
  });

  it("each have their limit, over all replicas", async () => {
    const [here, there] = twoReplicas({ perKey: { rate: "10/s" } });
    const drawing = [here, there, here, there].flatMap((bucket) =>
      [A, B, C].map((key) => bucket.draw({ key })),
    );

    await vi.advanceTimersByTimeAsync(2_000);
    const slots = await Promise.all(drawing);

    for (const key of [A, B, C]) {
      const atMs = slots.filter((slot) => slot.key === key).map((slot) => slot.atMs);
      const sorted = atMs.toSorted((a, b) => a - b);
      const gapsMs = sorted.slice(1).map((at, index) => at - sorted[index]!);
      expect(gapsMs).toHaveLength(3);
      expect(Math.min(...gapsMs)).toBeGreaterThanOrEqual(100);
    }
  });

  it("get the leases that other replicas give back", async () => {
    const [here, there] = twoReplicas({ perKey: { concurrency: 1 } });
    const running = await here.draw({ key: A });
    const waiting = there.draw({ key: A });
    await vi.advanceTimersByTimeAsync(10);

    running.release();
    await vi.advanceTimersByTimeAsync(10);

    const slot = await waiting;
    expect(slot).toMatchObject({ bucket: "test", key: A, hasLease: true });
    slot.release();
  });

  it("are reported under the bucket's own name", async () => {
    const { bucket } = spread({ perKey: { rate: "1/h" } });
    const slot = await bucket.draw({ key: A });
    const late = rejectionOf(bucket.draw({ key: A, maxWaitMs: 5 }));
    await vi.advanceTimersByTimeAsync(10);

    expect(slot.bucket).toBe("test");
    expect(await late).toMatchObject({ bucket: "test", key: A });
    expect(await rejectionOf(bucket.draw())).toMatchObject({ option: "key" });
    expect(await rejectionOf(bucket.tryDraw({ key: 5 as never }))).toBeInstanceOf(
      InvalidOptionError,
    );
    await expect(bucket.checkDrawable("enqueue()", { key: A, cost: 2 })).rejects.toThrow(
      'bucket "test"',
    );
  });

  it("call throttled functions, and a job's first call uses the job's slot", async () => {
    const { store, places } = watched();
    const { bucket } = spread({ perKey: { rate: "100/s" } }, store);
    const call = bucket.throttled(async (key: string) => key, { key: (key) => key });
    const slot = await bucket.drawForJob({ key: A }, new Set());

    const hand = jobSlotOf({ bucket, slot: slot as never }, { key: A });
    const results = runWithJobSlot(hand, () => Promise.all([call(A), call(B)]));
    await vi.advanceTimersByTimeAsync(100);

    expect(await results).toEqual([A, B]);
    expect(places).toHaveLength(2);
    expect(bucket.isCalledByHand).toBe(true);
  });
});

describe("the parts of a spread bucket", () => {
  it.each(["b", "stripe", "tenant 17", "名前"])("lie evenly over the slots: %s", (name) => {
    const slots = createPartStores(createMemoryStore(), name).map(({ storeName }) =>
      slotOf(storeName),
    );

    const pieces = slots.toSorted((a, b) => a - b).map((slot) => Math.floor(slot / 512));
    expect(pieces).toEqual(Array.from({ length: 32 }, (_, piece) => piece));
  });

  it("are found by the slot of a key's own name, in this and all later releases", () => {
    const keys = ["a", "tenant 1", "10.0.0.1", "::1", "ключ"];

    expect(keys.map(partOf)).toEqual([30, 3, 25, 7, 20]);
  });
});

describe("the line of a spread bucket", () => {
  it("is as long as those of its parts together", async () => {
    const { bucket } = spread({ perKey: { rate: "1/h" }, maxWaiting: 10 });
    for (const key of [A, B, C]) await bucket.draw({ key });

    const outcomes = [A, B, C, A, B, C, A, B, C].map((key) => rejectionOf(bucket.draw({ key })));
    await vi.advanceTimersByTimeAsync(10);

    expect(bucket.waiting).toBe(8);
    expect(bucket.deferred).toBe(8);
    expect(await outcomes[8]).toBeInstanceOf(LineFullError);
    expect(await bucket.peek()).toMatchObject({ waitingHere: 8 });
    expect(await bucket.peek({ key: A })).toMatchObject({ waitingHere: 8 });
    await bucket.close();
  });

  it("ends when the bucket is closed, also for those who come later", async () => {
    const { bucket } = spread({ perKey: { rate: "1/h" } });
    const reasons: unknown[] = [];
    bucket.onClose((reason) => reasons.push(reason));
    for (const key of [A, B]) await bucket.draw({ key });
    const waiting = [A, B].map((key) => rejectionOf(bucket.draw({ key })));

    await bucket.close();

    const late = [bucket.draw({ key: C }), bucket.peek(), bucket.peek({ key: C }), bucket.pause()];
    const rejections = await Promise.all([...waiting, ...late.map(rejectionOf)]);
    for (const reason of [...rejections, ...reasons]) {
      expect(reason).toBeInstanceOf(ClosedError);
    }
    expect(reasons).toHaveLength(1);
  });
});

describe("what is done to a spread bucket", () => {
  it("a pause holds for all keys, also at a replica that has not used their parts yet", async () => {
    const [here, there] = twoReplicas({ perKey: { rate: "10/s", burst: 5 } });
    await there.tryDraw({ key: A });

    await here.pause();
    const paused = await Promise.all([A, B, C].map((key) => there.tryDraw({ key })));
    const states = await Promise.all([{}, { key: B }].map((options) => there.peek(options)));
    await here.resume();
    const resumed = await Promise.all([A, B, C].map((key) => there.tryDraw({ key })));

    expect(paused.map(({ allowed }) => allowed)).toEqual([false, false, false]);
    expect(states.map(({ pausedForMs }) => pausedForMs)).toEqual([Infinity, Infinity]);
    expect(resumed.map(({ allowed }) => allowed)).toEqual([true, true, true]);
  });

  it("a pause of one key holds for that key alone, until it is resumed", async () => {
    const [here, there] = twoReplicas({ perKey: { rate: "10/s", burst: 5 } });
    await there.tryDraw({ key: A });

    await here.pause({ key: A });
    const paused = await Promise.all([A, B, C].map((key) => there.tryDraw({ key })));
    await here.resume({ key: A });
    const resumed = await there.tryDraw({ key: A });

    expect(paused.map(({ allowed }) => allowed)).toEqual([false, true, true]);
    expect(resumed.allowed).toBe(true);
  });

  it("a resume lets callers go that wait here for other parts", async () => {
    const { bucket } = spread({ perKey: { rate: "10/s" } });
    await bucket.pause();
    const waiting = [A, B].map((key) => bucket.draw({ key }));
    await vi.advanceTimersByTimeAsync(10);

    await bucket.resume();
    await vi.advanceTimersByTimeAsync(10);

    expect(await Promise.all(waiting)).toHaveLength(2);
  });

  it("another policy holds for all keys, until the code's does again", async () => {
    const perKey = (burst: number) => ({ perKey: { rate: "1/h", burst } });
    const [here, there] = twoReplicas(perKey(5));
    const capacities = async () => {
      const decisions = await Promise.all([A, B, C].map((key) => there.tryDraw({ key })));
      return decisions.map(({ limits }) => limits[0]!.capacity);
    };
    await there.tryDraw({ key: A });
    await here.tryDraw({ key: B });

    await here.configure(perKey(9));
    const configured = await capacities();
    const state = await there.peek({ key: C });
    await there.configure("code");

    expect(configured).toEqual([9, 9, 9]);
    expect(state).toMatchObject({ policyFrom: "configured", policy: expect.stringContaining("9") });
    expect(await capacities()).toEqual([5, 5, 5]);
  });

  it.each([
    ["rate", { rate: "1/s" }],
    ["concurrency", { concurrency: 1, perKey: { rate: "1/s" } }],
    ["limits", { limits: [] }],
  ] as const)("refuses a %s for all keys together, and changes nothing", async (option, given) => {
    const { bucket } = spread({ perKey: { rate: "10/s" } });

    const refused = await rejectionOf(bucket.configure(given));

    expect(refused).toBeInstanceOf(InvalidOptionError);
    expect(refused).toMatchObject({ option });
    expect(await bucket.peek()).toMatchObject({ policyFrom: "code" });
  });

  it("a cooldown of the bucket holds for all keys, one of a key for none but itself", async () => {
    const feedback = (scope: unknown) =>
      typeof scope === "string" ? { coolMs: 1_000, scope: scope as "key" | "bucket" } : undefined;
    const [here, there] = twoReplicas({ perKey: { rate: "10/s", burst: 5 }, feedback });
    const slot = await here.draw({ key: A });
    const coolingMs = async () =>
      (await Promise.all([A, B, C].map((key) => there.peek({ key })))).map(
        (state) => state.coolingForMs > 0,
      );

    await here.reportOutcome("key", slot, 1);
    await here.outcomesReported();
    const ofKey = await coolingMs();
    await here.reportOutcome("bucket", slot, 1);
    await here.outcomesReported();

    expect(ofKey).toEqual([true, false, false]);
    expect(await coolingMs()).toEqual([true, true, true]);
  });

  it("is sent to listeners, until they are removed", async () => {
    const [here, there] = twoReplicas({ perKey: { rate: "10/s" } });
    const heard: (string | undefined)[] = [];
    await there.tryDraw({ key: A });
    const stop = there.onChange((key) => heard.push(key));
    await there.tryDraw({ key: B });

    await here.pause({ forMs: 10 });
    const until = heard.length;
    stop();
    await here.resume();

    expect(heard).toEqual([undefined, undefined]);
    expect(heard).toHaveLength(until);
  });

  it("of one key reaches the listeners of a process that has drawn for no key yet", () => {
    const { bucket } = spread({ perKey: { rate: "10/s" } });
    const heard: (string | undefined)[] = [];
    bucket.onChange((key) => heard.push(key));

    bucket.changed(A);

    expect(heard).toEqual([A]);
  });

  it("fails when a part could not be reached, and is done to the others", async () => {
    const store = createMemoryStore();
    const last = createPartStores(store, "test").at(-1)!.storeName;
    const steer: Store["steer"] = async (request) => {
      if (request.bucket === last) throw new StoreUnavailableError("no answer", {});
      return store.steer(request);
    };
    const [here, there] = twoReplicas({ perKey: { rate: "10/s" } }, undefined, {
      ...store,
      steer,
    });

    const failed = await rejectionOf(here.pause());

    expect(failed).toBeInstanceOf(StoreUnavailableError);
    expect(await there.tryDraw({ key: A })).toMatchObject({ allowed: false });
  });
});

describe("replicas of a spread bucket", () => {
  it("are counted whatever keys they draw for", async () => {
    const [here, there] = twoReplicas({ perKey: { rate: "10/s" } });
    const drawing = [here.draw({ key: B }), there.draw({ key: B })];
    await vi.advanceTimersByTimeAsync(500);
    await Promise.all(drawing);

    expect(await here.peek()).toMatchObject({ replicas: 2 });
  });

  it("that are older do not put their policy in force in a part that they use late", async () => {
    const policy = (burst: number) => ({ perKey: { rate: "1/h", burst } });
    const [older, newer] = twoReplicas(policy(5), policy(9));
    await older.tryDraw({ key: A });
    await vi.advanceTimersByTimeAsync(1_000);
    await newer.tryDraw({ key: B });
    await vi.advanceTimersByTimeAsync(1_000);

    const late = await older.tryDraw({ key: B });
    const again = await newer.tryDraw({ key: A });

    expect(late.limits[0]).toMatchObject({ capacity: 9 });
    expect(again.limits[0]).toMatchObject({ capacity: 9 });
  });

  it("that are rolled back put theirs in force in every part, whatever they use first", async () => {
    const store = createMemoryStore();
    const policy = (burst: number) => ({ perKey: { rate: "1/h", burst } });
    const [older, newer] = twoReplicas(policy(5), policy(9), store);
    await older.tryDraw({ key: A });
    await vi.advanceTimersByTimeAsync(1_000);
    await newer.tryDraw({ key: B });
    await vi.advanceTimersByTimeAsync(1_000);
    const { bucket: rolledBack } = spread(policy(5), store);
    await rolledBack.tryDraw({ key: A });

    const late = await rolledBack.tryDraw({ key: B });

    expect(late.limits[0]).toMatchObject({ capacity: 5 });
  });

  it("that come later leave what was configured in the parts that they use late", async () => {
    const policy = (burst: number) => ({ perKey: { rate: "1/h", burst } });
    const [first, second] = twoReplicas(policy(5));
    await first.configure(policy(9));
    await vi.advanceTimersByTimeAsync(1_000);
    await second.tryDraw({ key: A });

    const late = await second.tryDraw({ key: B });

    expect(late.limits[0]).toMatchObject({ capacity: 9 });
  });
});
