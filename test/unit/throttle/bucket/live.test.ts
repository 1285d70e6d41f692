import { describe, expect, it, vi } from "vitest";
import { InvalidOptionError, LineFullError } from "../../../../src/core/errors.ts";
import { contract } from "../../../../src/core/policy/contract.ts";
import { leakyBucket, tokenBucket } from "../../../../src/core/policy/limit-makers.ts";
import { createMemoryStore } from "../../../../src/stores/memory/memory-store.ts";
import { createTestBucket } from "../../../support/draws/test-bucket.ts";
import { fakeTimers } from "../../../support/async/fake-timers.ts";

fakeTimers({ leavesNone: true });

/** Two replicas of one bucket, each with a policy of its own if two are given. */
function twoReplicas(first: object, second: object = first) {
  const store = createMemoryStore();
  return [first, second].map((options) => createTestBucket(options, { store }).bucket);
}

describe("configure", () => {
  it("reaches callers that wait at another replica within a second", async () => {
    const [here, there] = twoReplicas({ rate: "1/h" });
    await there!.draw();
    const waiting = there!.draw();
    await vi.advanceTimersByTimeAsync(50);

    await here!.configure({ rate: "100/s" });
    await vi.advanceTimersByTimeAsync(1_000);

    await expect(waiting).resolves.toMatchObject({ bucket: "test" });
    await Promise.all([here!.close(), there!.close()]);
  });

  it("does not reset what was used", async () => {
    const day = (capacity: number) => ({
      limits: [tokenBucket({ capacity, refill: "1/d" })],
    });
    const [bucket] = twoReplicas(day(10));
    for (let call = 0; call < 6; call++) await bucket!.draw();

    await bucket!.configure(day(8));

    expect((await bucket!.peek()).limits[0]).toMatchObject({ capacity: 8, level: 6, remaining: 2 });
    await bucket!.close();
  });

  it("overrides the code of a later replica, until the override ends", async () => {
    const [here, there] = twoReplicas({ rate: "100/s" });
    await here!.draw();
    await here!.configure({ rate: "20/s" });
    const drawing = there!.draw();
    await vi.advanceTimersByTimeAsync(100);
    await drawing;

    const configured = await there!.peek();
    await here!.configure("code");
    const again = await there!.peek();

    expect(configured).toMatchObject({ policy: "20/s", policyFrom: "configured" });
    expect(again).toMatchObject({ policy: "100/s", policyFrom: "code" });
    await Promise.all([here!.close(), there!.close()]);
  });

  it("moves waiting callers to a policy that counts other units", async () => {
    const [bucket] = twoReplicas({ rate: "1/h" });
    await bucket!.draw();
    const waiting = Promise.all([bucket!.draw(), bucket!.draw({ priority: "low" })]);
    await vi.advanceTimersByTimeAsync(20);

    await bucket!.configure({
      limits: [leakyBucket("100/s"), leakyBucket("1000/s", { unit: "tokens", burst: 5 })],
    });
    await vi.advanceTimersByTimeAsync(1_000);

    await expect(waiting).resolves.toHaveLength(2);
    await bucket!.close();
  });

  it("keeps what another replica has configured in between, and what it does not name", async () => {
    const [here, there] = twoReplicas({ rate: "100/s" });
    await Promise.all([here!.draw(), there!.tryDraw()]);

    await here!.configure({ perKey: { rate: "1/s" } });
    await there!.configure({ rate: "20/s" });

    expect((await here!.peek()).policy).toBe("20/s; per key 1/s");
    await Promise.all([here!.close(), there!.close()]);
  });

  it("refuses a policy that can never work and changes nothing", async () => {
    const [bucket] = twoReplicas({ rate: "100/s" });

    await expect(bucket!.configure({ rate: "fast" as string })).rejects.toBeInstanceOf(
      InvalidOptionError,
    );

    expect((await bucket!.peek()).policy).toBe("100/s");
    await bucket!.close();
  });
});

describe("pause", () => {
  it("starts no call of any replica until resume, and slots from before are not used", async () => {
    const [here, there] = twoReplicas({ rate: "100/s" });
    const left: number[] = [];
    const draw = async (): Promise<void> => {
      await there!.draw();
      left.push(performance.now());
    };
    const calls = Promise.all(Array.from({ length: 20 }, draw));
    await vi.advanceTimersByTimeAsync(35);

    await here!.pause();
    await vi.advanceTimersByTimeAsync(1);
    const before = left.length;
    await vi.advanceTimersByTimeAsync(10_000);
    const during = left.length;
    await here!.resume();
    await vi.advanceTimersByTimeAsync(1_000);
    await calls;

    expect(during - before).toBe(0);
    expect(left).toHaveLength(20);
    await Promise.all([here!.close(), there!.close()]);
  });

  it("ends by itself after its time", async () => {
    const [bucket] = twoReplicas({ rate: "100/s" });
    await bucket!.pause({ forMs: 3_000 });
    const startMs = performance.now();

    const drawing = bucket!.draw();
    await vi.advanceTimersByTimeAsync(4_000);

    expect((await drawing).waitedMs).toBeGreaterThanOrEqual(3_000);
    expect(performance.now() - startMs).toBe(4_000);
    await bucket!.close();
  });

  it.each([0, -1, 1.5, "5s"])("refuses to last %j ms", async (forMs) => {
    const [bucket] = twoReplicas({ rate: "100/s" });

    await expect(bucket!.pause({ forMs: forMs as never })).rejects.toBeInstanceOf(
      InvalidOptionError,
    );
    await bucket!.close();
  });
});

describe("peek", () => {
  it('says in JSON that a pause has no end, and not "null"', async () => {
    const [bucket] = twoReplicas({ rate: "100/s" });
    await bucket!.pause();

    const said = JSON.stringify({ stripe: await bucket!.peek() });

    expect(JSON.parse(said)).toMatchObject({ stripe: { pausedForMs: "forever", coolingForMs: 0 } });
    expect(said).not.toContain("null");
    await bucket!.close();
  });

  it("shows a contract by its terms, as do waiting callers", async () => {
    const [bucket] = twoReplicas({ ...contract(1, "1 minute"), concurrency: 5 });
    (await bucket!.draw()).release();

    const refused = await bucket!.tryDraw();

    expect(await bucket!.peek()).toMatchObject({ policy: "contract of 1 per 1min + 5 at once" });
    expect(refused).toMatchObject({ allowed: false, limitedBy: "contract of 1 per 1min" });
    await bucket!.close();
  });
});

describe("a pause of one key", () => {
  const PER_KEY = { rate: "1000/s", perKey: { rate: "100/s" } };

  it("starts none of its calls at any replica until resume, and lets others go on", async () => {
    const [here, there] = twoReplicas(PER_KEY);
    const left: string[] = [];
    const draw = async (key: string): Promise<void> => {
      await there!.draw({ key });
      left.push(key);
    };
    const calls = Array.from({ length: 20 }, () => [draw("acme"), draw("bolt")]).flat();
    await vi.advanceTimersByTimeAsync(35);

    await here!.pause({ key: "acme" });
    await vi.advanceTimersByTimeAsync(1);
    const before = left.filter((key) => key === "acme").length;
    await vi.advanceTimersByTimeAsync(10_000);
    const during = left.filter((key) => key === "acme").length - before;
    const others = left.filter((key) => key === "bolt").length;
    const states = await Promise.all([there!.peek(), there!.peek({ key: "acme" })]);
    await here!.resume();
    await vi.advanceTimersByTimeAsync(1_000);
    const afterOthers = left.filter((key) => key === "acme").length - before;
    await here!.resume({ key: "acme" });
    await vi.advanceTimersByTimeAsync(1_000);
    await Promise.all(calls);

    expect([during, afterOthers, others]).toEqual([0, 0, 20]);
    expect(states.map(({ pausedForMs }) => pausedForMs)).toEqual([0, Infinity]);
    expect(left).toHaveLength(40);
    await Promise.all([here!.close(), there!.close()]);
  });

  it("leaves what the key has used", async () => {
    const [bucket] = twoReplicas({ perKey: { rate: "1/h", burst: 3 } });
    for (let call = 0; call < 2; call++) await bucket!.tryDraw({ key: "acme" });

    await bucket!.pause({ key: "acme" });
    await bucket!.resume({ key: "acme" });

    const { limits } = await bucket!.peek({ key: "acme" });
    expect(limits[0]).toMatchObject({ level: 2, remaining: 1 });
    await bucket!.close();
  });

  it("drops the slots that its own process holds for the key", async () => {
    const [bucket] = twoReplicas(PER_KEY);
    let left = 0;
    const calls = Array.from({ length: 20 }, async () => {
      await bucket!.draw({ key: "acme" });
      left += 1;
    });
    await vi.advanceTimersByTimeAsync(35);
    const before = left;

    await bucket!.pause({ key: "acme" });
    await vi.advanceTimersByTimeAsync(10_000);
    const during = left - before;
    await bucket!.resume({ key: "acme" });
    await vi.advanceTimersByTimeAsync(1_000);
    await Promise.all(calls);

    expect(before).toBeGreaterThan(0);
    expect(during).toBe(0);
    await bucket!.close();
  });

  it("ends by itself after its time, and refuses tries until then", async () => {
    const [bucket] = twoReplicas(PER_KEY);
    await bucket!.pause({ key: "acme", forMs: 3_000 });

    const refused = await bucket!.tryDraw({ key: "acme" });
    const drawing = bucket!.draw({ key: "acme" });
    await vi.advanceTimersByTimeAsync(4_000);

    expect(refused).toMatchObject({ allowed: false, retryAfterMs: 3_000 });
    expect((await drawing).waitedMs).toBeGreaterThanOrEqual(3_000);
    await bucket!.close();
  });

  it.each(["pause", "resume"] as const)(
    "is refused where the key has no separate limits: %s",
    async (method) => {
      const [bucket] = twoReplicas({ rate: "100/s" });

      const failing = bucket![method]({ key: "acme" });

      await expect(failing).rejects.toThrow(`${method}(): option "key" is "acme"`);
      await expect(failing).rejects.toBeInstanceOf(InvalidOptionError);
      expect(await bucket!.peek({ key: "acme" })).toMatchObject({ pausedForMs: 0 });
      await bucket!.close();
    },
  );
});

describe("maxWaiting", () => {
  it("keeps the line for those who are more urgent as it fills", async () => {
    const { bucket } = createTestBucket({ rate: "1/h", maxWaiting: 10 });
    const asked = (priority: "low" | "normal" | "high" | "critical", count: number) =>
      Array.from({ length: count }, async () =>
        bucket.draw({ priority }).then(
          () => "left",
          (error: Error) => error.name,
        ),
      );
    await bucket.draw();

    const outcomes = [
      ...asked("low", 8),
      ...asked("normal", 2),
      ...asked("high", 2),
      ...asked("critical", 2),
    ];
    await vi.advanceTimersByTimeAsync(10);
    const { waiting } = bucket;
    await bucket.close();

    const all = await Promise.all(outcomes);
    const refused = all.map((name) => name === "LineFullError");
    expect(waiting).toBe(10);
    expect(refused.map(Number).join("")).toBe("00000001" + "01" + "01" + "01");
  });

  it("returns the time of the next attempt to a rejected caller", async () => {
    const { bucket } = createTestBucket({ rate: "10/s", maxWaiting: 1 });
    await bucket.draw();
    const waiting = bucket.draw({ priority: "critical" });
    await vi.advanceTimersByTimeAsync(1);

    const refused = bucket.draw({ priority: "critical" });

    await expect(refused).rejects.toBeInstanceOf(LineFullError);
    await expect(refused).rejects.toMatchObject({ waiting: 1, retryAfterMs: 100 });
    await vi.advanceTimersByTimeAsync(200);
    await waiting;
    await bucket.close();
  });
});
