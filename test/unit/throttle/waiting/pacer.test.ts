import { describe, expect, it, vi } from "vitest";
import type { WaitPosition, SlotRequest } from "../../../../src/core/store.ts";
import { createMemoryStore } from "../../../../src/stores/memory/memory-store.ts";
import type { BucketOptions } from "../../../../src/throttle/bucket/bucket-options.ts";
import type { Wait } from "../../../../src/throttle/waiting/wait.ts";
import { NoRoomYet, type WaitOptions } from "../../../../src/throttle/waiting/waiting-call.ts";
import { deferred } from "../../../support/async/deferred.ts";
import { rejectionOf } from "../../../support/async/rejection.ts";
import { createTestBucket } from "../../../support/draws/test-bucket.ts";
import { fakeTimers } from "../../../support/async/fake-timers.ts";

fakeTimers({ leavesNone: true });

interface Places {
  readonly position: WaitPosition;
  readonly slotRequest: Pick<SlotRequest, "scopes">;
}

/** The turns in the bucket, and in its key, that a request tells of; 0: none. */
function turnsOf({ position, slotRequest }: Places): number[] {
  return [position.turnUs, slotRequest.scopes[0]?.position.turnUs ?? 0];
}

/** A bucket, the keys that its store was asked for, request by request, and how calls of jobs fare. */
function watched(options: BucketOptions) {
  const store = createMemoryStore();
  const draw = vi.spyOn(store, "draw");
  const giveBack = vi.spyOn(store, "giveBack");
  const { bucket } = createTestBucket(options, { store });
  const waits = new Set<Wait>();
  const asked = (): (string | undefined)[][] =>
    draw.mock.calls.map(([{ slotRequests }]) => slotRequests.map(({ scopes }) => scopes[0]?.key));
  /** Adds each call to `left` when it gets its slot or is sent away. */
  const left: string[] = [];
  const drawForJob = (name: string, wait: WaitOptions): void => {
    bucket.drawForJob(wait, waits).then(
      (drawn) => left.push(drawn instanceof NoRoomYet ? `${name} sent away` : name),
      () => left.push(`${name} failed`),
    );
  };
  return { bucket, draw, giveBack, asked, left, drawForJob };
}

const slowKeys: BucketOptions = { rate: "1000/s", perKey: { rate: "1/h" } };

describe("a change of one key", () => {
  it("draws again only for the calls that wait for it", async () => {
    const { bucket, asked } = watched(slowKeys);
    const first = Promise.all([bucket.draw({ key: "a" }), bucket.draw({ key: "b" })]);
    await vi.advanceTimersByTimeAsync(20);
    await first;
    const waiting = Promise.allSettled([bucket.draw({ key: "a" }), bucket.draw({ key: "b" })]);
    await vi.advanceTimersByTimeAsync(20);
    const before = asked().length;

    bucket.redraw("a");
    await vi.advanceTimersByTimeAsync(0);

    expect(asked().slice(before)).toEqual([["a"]]);
    await bucket.close();
    await waiting;
  });

  it("that no call waits for causes no draw", async () => {
    const { bucket, asked } = watched(slowKeys);
    await bucket.draw({ key: "a" });
    const waiting = rejectionOf(bucket.draw({ key: "a" }));
    await vi.advanceTimersByTimeAsync(20);
    const before = asked().length;

    bucket.redraw("c");
    await vi.advanceTimersByTimeAsync(20);

    expect(asked()).toHaveLength(before);
    await bucket.close();
    await waiting;
  });
});

describe.each([
  { slow: "key", options: slowKeys, key: "a" },
  { slow: "bucket", options: { rate: "1/h" }, key: undefined },
])("a caller of a slow $slow that has left", ({ options, key }) => {
  async function afterOneHasLeft() {
    const parts = watched(options);
    await parts.bucket.draw({ key });
    const impatient = rejectionOf(parts.bucket.draw({ key, maxWaitMs: 50 }));
    await vi.advanceTimersByTimeAsync(50);
    await impatient;
    const before = parts.asked().length;
    const next = rejectionOf(parts.bucket.draw({ key }));
    await vi.advanceTimersByTimeAsync(0);
    return { ...parts, before, next };
  }

  it("leaves no time behind that the next one would have to wait for before it is asked for", async () => {
    const { bucket, asked, before, next } = await afterOneHasLeft();

    expect(asked().slice(before)).toEqual([[key]]);
    await bucket.close();
    await next;
  });

  it("gives its turn back once, and the next one does not claim it", async () => {
    const { bucket, draw, giveBack, next } = await afterOneHasLeft();

    const { position, slotRequests } = draw.mock.calls.at(-1)![0];
    const returned = giveBack.mock.calls.flatMap(([request]) => turnsOf(request));
    expect(returned.filter((turnUs) => turnUs > 0)).toHaveLength(1);
    expect(turnsOf({ position, slotRequest: slotRequests[0]! })).toEqual([0, 0]);
    await bucket.close();
    await next;
  });
});

describe("the positions of callers that wait for their turns", () => {
  const returnedBy = ({ giveBack }: ReturnType<typeof watched>): number[] =>
    giveBack.mock.calls.flatMap(([request]) => turnsOf(request));

  it("go back when the bucket is closed", async () => {
    const parts = watched({ rate: "1/h" });
    await parts.bucket.draw();
    const waiting = rejectionOf(parts.bucket.draw());
    await vi.advanceTimersByTimeAsync(20);

    await parts.bucket.close();
    await waiting;

    expect(returnedBy(parts)).toEqual([expect.any(Number), 0]);
    expect(returnedBy(parts)[0]).toBeGreaterThan(0);
  });

  it("go back although they leave while the store is asked for others", async () => {
    const parts = watched(slowKeys);
    await parts.bucket.draw({ key: "a" });
    const leaving = new AbortController();
    const left = rejectionOf(parts.bucket.draw({ key: "a", signal: leaving.signal }));
    await vi.advanceTimersByTimeAsync(20);
    parts.draw.mockImplementationOnce(async (request) => {
      const reply = await parts.draw(request);
      leaving.abort();
      return reply;
    });

    await parts.bucket.draw({ key: "b" });
    await left;

    expect(returnedBy(parts).filter((turnUs) => turnUs > 0)).toHaveLength(1);
    await parts.bucket.close();
  });

  it("go back when they are sent away for want of patience", async () => {
    const parts = watched(slowKeys);
    await parts.bucket.draw({ key: "a" });

    parts.drawForJob("impatient", { key: "a", patienceMs: 250 });
    await vi.advanceTimersByTimeAsync(20);

    expect(parts.left).toEqual(["impatient sent away"]);
    expect(returnedBy(parts).filter((turnUs) => turnUs > 0)).toHaveLength(1);
    await parts.bucket.close();
  });

  it.each([
    { slow: "bucket", options: { rate: "1/h", burst: 2 }, key: undefined },
    { slow: "key", options: { perKey: { rate: "1/h", burst: 2 } }, key: "a" },
  ])("of a slow $slow stay while others wait there, whatever their cost", async (slow) => {
    const { key, options } = slow;
    const parts = watched(options);
    await parts.bucket.draw({ key, cost: 2 });
    const staying = rejectionOf(parts.bucket.draw({ key }));
    const leaving = rejectionOf(parts.bucket.draw({ key, cost: 2, maxWaitMs: 50 }));
    await vi.advanceTimersByTimeAsync(50);
    await leaving;
    await vi.advanceTimersByTimeAsync(1_000);

    expect(returnedBy(parts).filter((turnUs) => turnUs > 0)).toEqual([]);
    await parts.bucket.close();
    await staying;
  });
});

describe("a bucket that is closed while the store is asked", () => {
  it("is closed when the slots that come then have gone back", async () => {
    const { bucket, draw, giveBack } = watched({ rate: "100/s" });
    const reply = deferred();
    draw.mockImplementationOnce(async (request) => {
      await reply.promise;
      return draw(request);
    });
    const waiting = rejectionOf(bucket.draw());
    await vi.advanceTimersByTimeAsync(0);

    let isClosed = false;
    const closing = bucket.close().then(() => (isClosed = true));
    await vi.advanceTimersByTimeAsync(0);
    const wasClosedBefore = isClosed;
    reply.resolve();
    await closing;

    expect(wasClosedBefore).toBe(false);
    expect(giveBack.mock.calls.map(([{ slotsUs }]) => slotsUs.length)).toEqual([1]);
    await waiting;
  });
});

describe("hundreds of keys in which many wait", () => {
  it("are all served once before any is served twice, also those that came last", async () => {
    const { bucket } = watched({ rate: "100/s", perKey: { rate: "10/s" } });
    const keys = Array.from({ length: 600 }, (_, index) => `key ${index}`);
    const left: string[] = [];
    const draw = async (key: string): Promise<void> => {
      await bucket.draw({ key });
      left.push(key);
    };

    const calls = Promise.allSettled([...keys, ...keys, ...keys].map(draw));
    await vi.advanceTimersByTimeAsync(6_500);

    expect(left.length).toBeGreaterThanOrEqual(600);
    expect(new Set(left.slice(0, 600)).size).toBe(600);
    await bucket.close();
    await calls;
  });
});

describe("the call of a job", () => {
  const key = "a";
  const perSecond: BucketOptions = { rate: "1000/s", perKey: { rate: "1/s" } };

  it("is sent away at once when its key's time is farther off than its patience", async () => {
    const { bucket, left, drawForJob } = watched(perSecond);
    for (const name of ["first", "second", "third"]) drawForJob(name, { key, patienceMs: 250 });

    await vi.advanceTimersByTimeAsync(20);

    expect(left.toSorted()).toEqual(["first", "second sent away", "third sent away"]);
    expect(bucket.waiting).toBe(0);
    await bucket.close();
  });

  it("gets the time at which its key may be drawn again", async () => {
    const { bucket } = watched(perSecond);
    await bucket.draw({ key });

    const drawing = bucket.drawForJob({ key, patienceMs: 250 }, new Set());
    await vi.advanceTimersByTimeAsync(20);

    const drawn = await drawing;
    expect(drawn).toBeInstanceOf(NoRoomYet);
    expect((drawn as NoRoomYet).roomInMs).toBeGreaterThan(900);
    expect((drawn as NoRoomYet).roomInMs).toBeLessThanOrEqual(1_000);
    await bucket.close();
  });

  it("stays when its patience reaches as far as its key's time, and gets its slot", async () => {
    const { bucket, left, drawForJob } = watched(perSecond);
    drawForJob("first", { key, patienceMs: 250 });
    drawForJob("patient", { key, patienceMs: 1_000 });
    drawForJob("impatient", { key, patienceMs: 250 });

    await vi.advanceTimersByTimeAsync(20);
    const soon = left.toSorted();
    await vi.advanceTimersByTimeAsync(1_200);

    expect(soon).toEqual(["first", "impatient sent away"]);
    expect(left.at(-1)).toBe("patient");
    await bucket.close();
  });

  it("is sent away also when one that waits for as long as it takes came after it", async () => {
    const { bucket, left, drawForJob } = watched(perSecond);
    drawForJob("first", { key, patienceMs: 250 });
    drawForJob("impatient", { key, patienceMs: 250 });
    drawForJob("patient", { key });
    drawForJob("urgent", { key, priority: "high" });

    await vi.advanceTimersByTimeAsync(20);
    const soon = left.toSorted();
    await vi.advanceTimersByTimeAsync(2_200);

    expect(soon).toEqual(["first sent away", "impatient sent away", "urgent"]);
    expect(left.slice(-1)).toEqual(["patient"]);
    await bucket.close();
  });

  it("that comes while its key is known to be far off is sent away without a question", async () => {
    const { bucket, asked, left, drawForJob } = watched(perSecond);
    await bucket.draw({ key });
    const waiting = bucket.draw({ key });
    await vi.advanceTimersByTimeAsync(20);
    const before = asked().length;

    drawForJob("late", { key, patienceMs: 250 });
    await vi.advanceTimersByTimeAsync(20);

    expect(left).toEqual(["late sent away"]);
    expect(asked()).toHaveLength(before);
    await vi.advanceTimersByTimeAsync(1_200);
    await waiting;
    await bucket.close();
  });

  it("sends no call back that waits for another key, or has a slot", async () => {
    const { bucket, left, drawForJob } = watched({ rate: "20/s", perKey: { rate: "20/s" } });
    drawForJob("first", { key: "a", patienceMs: 60 });
    drawForJob("second", { key: "a", patienceMs: 60 });
    drawForJob("other", { key: "b", patienceMs: 60 });

    await vi.advanceTimersByTimeAsync(1_000);

    expect(left.toSorted()).toEqual(["first", "other", "second"]);
    await bucket.close();
  });

  it("counts as held back while its key's time lies ahead, and no call of another key does", async () => {
    const { bucket, drawForJob } = watched({ rate: "10/s", perKey: { rate: "1/s" }, fair: false });
    for (const name of ["first", "second", "third"]) drawForJob(name, { key, patienceMs: 9_000 });
    for (const other of ["b", "c", "d", "e"]) drawForJob(other, { key: other });

    const before = bucket.deferred;
    await vi.advanceTimersByTimeAsync(20);
    const during = [bucket.deferred, bucket.waiting];
    await vi.advanceTimersByTimeAsync(5_000);

    expect(before).toBe(0);
    expect(during[0]).toBe(2);
    expect(during[1]).toBeGreaterThan(2);
    expect(bucket.deferred).toBe(0);
    await bucket.close();
  });

  it("does not count as held back once it has its slot, though the slot lies ahead", async () => {
    const { bucket, drawForJob } = watched({ rate: "100/s", perKey: { rate: "1/s", burst: 3 } });
    for (let call = 0; call < 5; call++) drawForJob(String(call), { key, patienceMs: 9_000 });

    await vi.advanceTimersByTimeAsync(5);

    expect([bucket.waiting, bucket.deferred]).toEqual([4, 2]);
    await bucket.close();
  });

  it("takes turns with those of other keys, by the weights of its queue, in a fair bucket", async () => {
    const { bucket, left, drawForJob } = watched({ rate: "100/s", fair: true });
    for (const key of ["a", "a", "a", "a", "b", "b", "c"]) {
      drawForJob(key, { key, lane: key, laneWeights: [key === "a" ? 2 : 1] });
    }

    await vi.advanceTimersByTimeAsync(200);

    expect(left.join("")).toBe("abcaaba");
    await bucket.close();
  });

  it("takes turns with those of other lanes, newcomers first, where keys have no separate limits", async () => {
    const { bucket, left, drawForJob } = watched({ rate: "100/s", fair: false });
    for (const lane of ["a", "a", "a", "b", "b", "c"]) drawForJob(lane, { key: lane, lane });

    await vi.advanceTimersByTimeAsync(200);

    expect(left.join("")).toBe("cbabaa");
    await bucket.close();
  });
});
