import { describe, expect, it } from "vitest";
import {
  fixedWindow,
  leakyBucket,
  slidingLog,
  tokenBucket,
} from "../../../src/core/policy/limit-makers.ts";
import type { ShadowCounts } from "../../../src/core/store.ts";
import {
  createTestReplica,
  policyOf,
  slotsOf,
  type TestReplica,
} from "../../support/draws/test-replica.ts";
import { createReferenceBucket } from "../../support/draws/reference-bucket.ts";
import { simulate } from "../../support/draws/simulate.ts";
import { storeKinds, type PinnedStore } from "../../support/draws/store-kinds.ts";

const SECOND_US = 1_000_000;
const HELD = leakyBucket("300/s", { burst: 10 });

/** When a line under a limit would have let calls go, one after the other, that came at these times. */
type Line = (cameUs: readonly number[]) => number[];

const ofBucket: Line = (cameUs) => {
  const bucket = createReferenceBucket({ count: 150, periodUs: SECOND_US, capacity: 4 });
  return cameUs.map((us) => bucket.reserve(us, 1));
};

const ofWindows: Line = (cameUs) => {
  const used = new Map<number, number>();
  let lastUs = 0;
  return cameUs.map((us) => {
    let atUs = Math.max(us, lastUs);
    while ((used.get(Math.floor(atUs / SECOND_US)) ?? 0) >= 40) {
      atUs = (Math.floor(atUs / SECOND_US) + 1) * SECOND_US;
    }
    const window = Math.floor(atUs / SECOND_US);
    used.set(window, (used.get(window) ?? 0) + 1);
    return (lastUs = atUs);
  });
};

const ofLog: Line = (cameUs) => {
  const slotsUs: number[] = [];
  for (const us of cameUs) {
    const leavesUs = (slotsUs.at(-40) ?? -Infinity) + SECOND_US;
    slotsUs.push(Math.max(us, slotsUs.at(-1) ?? 0, leavesUs));
  }
  return slotsUs;
};

function countsOf(cameUs: readonly number[], line: Line): ShadowCounts {
  const waitsUs = line(cameUs).map((us, index) => us - cameUs[index]!);
  const waited = waitsUs.filter((us) => us > 0).length;
  return { calls: cameUs.length, waited, longestUs: Math.max(...waitsUs), refused: 0 };
}

/** Bursts of calls of three replicas, with quiet times between them; the slots of all, in their order. */
async function drawInBursts(
  pinned: PinnedStore,
  limits: NonNullable<Parameters<typeof policyOf>[0]["limits"]>,
): Promise<{ readonly slotsUs: readonly number[]; readonly replica: TestReplica }> {
  const policy = policyOf({ limits });
  const replicas = ["a", "b", "c"].map((name) =>
    createTestReplica(pinned.store, { bucket: "b", name, policy }),
  );
  const slotsUs: number[] = [];
  for (const forMs of [100, 30, 700, 5, 250]) {
    const grants = await simulate(pinned, replicas, { forMs, backlog: 7 });
    slotsUs.push(...grants.flat());
    pinned.clock.advanceMs(2 * forMs + 400);
  }
  return { slotsUs: slotsUs.sort((a, b) => a - b), replica: replicas[0]! };
}

describe.each(storeKinds())("a limit in shadow, with the store in $name,", ({ open }) => {
  it.each([
    ["a leaky bucket", leakyBucket("150/s", { burst: 4, shadow: true }), ofBucket],
    ["a token bucket", tokenBucket({ capacity: 4, refill: "150/s", shadow: true }), ofBucket],
    ["a fixed window", fixedWindow(40, "1s", { shadow: true }), ofWindows],
    ["a sliding log", slidingLog(40, "1s", { shadow: true }), ofLog],
  ])(
    "counts the calls of several replicas that would have waited: %s",
    async (_name, shadow, line) => {
      const { slotsUs, replica } = await drawInBursts(open(), [HELD, shadow]);

      const { shadows } = await replica.peek();

      const expected = countsOf(slotsUs, line);
      expect(shadows).toEqual([expected]);
      expect(expected.waited).toBeGreaterThan(20);
      expect(expected.waited).toBeLessThan(expected.calls - 10);
    },
  );

  it.each([
    ["a leaky bucket", leakyBucket("150/s", { burst: 4, shadow: true }), ofBucket],
    ["a fixed window", fixedWindow(40, "1s", { shadow: true }), ofWindows],
    ["a sliding log", slidingLog(40, "1s", { shadow: true }), ofLog],
  ])(
    "counts without other limits, by the arrival of calls of several replicas: %s",
    async (_name, shadow, line) => {
      const { store, clock } = open();
      const policy = policyOf({ limits: [shadow] });
      const replicas = ["a", "b", "c"].map((name) =>
        createTestReplica(store, { bucket: "b", name, policy }),
      );
      const cameUs: number[] = [];
      const slotsUs: number[] = [];

      for (let at = 0; at < 90; at += 1) {
        const calls = (at * 7) % 5;
        const isTry = at % 4 === 3;
        cameUs.push(...Array.from({ length: calls }, () => clock.nowUs()));
        if (calls > 0)
          slotsUs.push(...slotsOf(await replicas[at % 3]!.drawAll([{ wanted: calls, isTry }])));
        clock.advanceMs(at % 30 === 0 ? 2_500 : (at * 5) % 23);
      }

      const { shadows } = await replicas[0]!.peek();
      const expected = countsOf(cameUs, line);
      expect(slotsUs).toEqual(cameUs);
      expect(shadows).toEqual([expected]);
      expect(expected.waited).toBeGreaterThan(20);
      expect(expected.waited).toBeLessThan(expected.calls - 10);
    },
  );

  it("lets any number of calls pass if it is the only limit, up to 1,000 per draw, and counts each", async () => {
    const { store } = open();
    const policy = policyOf({ limits: [leakyBucket("100/s", { shadow: true })] });
    const [one, other] = ["a", "b"].map((name) =>
      createTestReplica(store, { bucket: "b", name, policy }),
    );

    const counts: number[] = [];
    for (const replica of [one!, other!, one!])
      counts.push(slotsOf(await replica.draw(2_200)).length);
    const tried = slotsOf(await other!.drawAll([{ wanted: 2_200, isTry: true }]));

    expect(counts).toEqual([1_000, 1_000, 1_000]);
    expect(tried).toHaveLength(2_200);
    expect((await one!.peek()).shadows).toMatchObject([{ calls: 5_200, waited: 5_199 }]);
  });

  it("lets no call pass during a pause, and spaces calls while responses demand gaps", async () => {
    const { store, clock } = open();
    const policy = policyOf({ limits: [leakyBucket("100/s", { shadow: true })] });
    const replica = createTestReplica(store, { bucket: "b", name: "a", policy });
    await replica.draw(1);

    await replica.steer({ do: "pause", durationUs: SECOND_US });
    const paused = slotsOf(await replica.draw(3));
    clock.advanceMs(1_500);
    await replica.steer({ do: "space", gapUs: 20_000, durationUs: 5 * SECOND_US });
    const slotsUs = slotsOf(await replica.draw(3));

    expect(paused).toEqual([]);
    expect(slotsUs.map((us) => us - clock.nowUs())).toEqual([0, 20_000, 40_000]);
    expect((await replica.peek()).shadows).toMatchObject([{ calls: 4, waited: 0 }]);
  });

  it("delays no call: the slots equal those of the same bucket without it", async () => {
    const without = await drawInBursts(open(), [HELD]);

    const beside = await drawInBursts(open(), [HELD, leakyBucket("1/min", { shadow: true })]);

    expect(beside.slotsUs).toEqual(without.slotsUs);
  });

  it("counts no waiting call if its numbers equal those of the active limit", async () => {
    const twin = leakyBucket("300/s", { burst: 10, shadow: true });
    const { slotsUs, replica } = await drawInBursts(open(), [HELD, twin]);

    const { shadows } = await replica.peek();

    expect(shadows).toEqual([{ calls: slotsUs.length, waited: 0, longestUs: 0, refused: 0 }]);
  });

  it("counts a call that would wait for over an hour as refused, without using units", async () => {
    const { store } = open();
    const limits = [
      HELD,
      tokenBucket({ capacity: 4, refill: "1/h", unit: "tokens", shadow: true }),
    ];
    const replica = createTestReplica(store, {
      bucket: "b",
      name: "a",
      policy: policyOf({ limits }),
    });

    for (const tokens of [5, 4, 1, 1, 1]) {
      await replica.drawAll([{ wanted: 1, cost: { calls: 1, tokens } }]);
    }

    const { shadows } = await replica.peek();
    expect(shadows).toEqual([{ calls: 5, waited: 1, longestUs: 3_600 * SECOND_US, refused: 3 }]);
  });

  it("books the true cost of calls once it is known", async () => {
    const { store } = open();
    const limits = [HELD, leakyBucket("1/s", { burst: 10, unit: "tokens", shadow: true })];
    const replica = createTestReplica(store, {
      bucket: "b",
      name: "a",
      policy: policyOf({ limits }),
    });
    const draw = async (): Promise<number> =>
      slotsOf(await replica.drawAll([{ wanted: 1, cost: { calls: 1, tokens: 10 } }]))[0]!;

    const slotUs = await draw();
    await replica.settle(slotUs, { tokens: -10 });
    await draw();
    const afterLess = (await replica.peek()).shadows[0]!.waited;
    await draw();

    expect(afterLess).toBe(0);
    expect((await replica.peek()).shadows[0]!.waited).toBe(1);
  });

  it.each([
    ["more", 1_000],
    ["less", -4],
  ])("settles nothing for calls that were refused, whether they cost %s", async (_what, delta) => {
    const { store, clock } = open();
    const shadow = tokenBucket({ capacity: 4, refill: "1/h", unit: "tokens", shadow: true });
    const policy = policyOf({ limits: [HELD, shadow] });
    const replica = createTestReplica(store, { bucket: "b", name: "a", policy });
    const draw = async (tokens: number): Promise<number> =>
      slotsOf(await replica.drawAll([{ wanted: 1, cost: { calls: 1, tokens } }]))[0]!;
    for (const tokens of [4, 1]) await draw(tokens);

    const refusedUs = await draw(4);
    await replica.settle(refusedUs, { tokens: delta });
    await draw(1);
    clock.advanceMs(2 * 3_600_000);
    await draw(1);

    const [counts] = (await replica.peek()).shadows;
    expect(counts).toMatchObject({ calls: 5, waited: 1, refused: 2 });
  });

  it("counts granted tries, and not rejected ones", async () => {
    const { store } = open();
    const limits = [leakyBucket("10/s", { burst: 3 }), leakyBucket("10/s", { shadow: true })];
    const replica = createTestReplica(store, {
      bucket: "b",
      name: "a",
      policy: policyOf({ limits }),
    });

    await replica.drawAll([{ wanted: 5, isTry: true }]);

    const { shadows } = await replica.peek();
    expect(shadows).toMatchObject([{ calls: 3, waited: 2, longestUs: 200_000 }]);
  });

  it("does not count a returned slot again when another call takes it", async () => {
    const { store } = open();
    const limits = [leakyBucket("100/s"), leakyBucket("100/s", { shadow: true })];
    const replica = createTestReplica(store, {
      bucket: "b",
      name: "a",
      policy: policyOf({ limits }),
    });
    const slotsUs = slotsOf(await replica.draw(5));

    await replica.giveBack([slotsUs[2]!]);
    const again = slotsOf(await replica.draw(1));

    expect(again).toEqual([slotsUs[2]]);
    expect((await replica.peek()).shadows).toMatchObject([{ calls: 5, waited: 0 }]);
  });

  it("restarts when its numbers change, and delays calls once it is an active limit", async () => {
    const pinned = open();
    const { store, clock } = pinned;
    const under = (limits: Parameters<typeof drawInBursts>[1], version: number): TestReplica => {
      const policy = policyOf({ limits });
      return createTestReplica(store, { bucket: "b", name: "a", policy, version });
    };
    const declared = clock.nowUs();
    await under([HELD, leakyBucket("5/s", { shadow: true })], declared).draw(6);

    const other = under([HELD, leakyBucket("50/s", { shadow: true })], declared + 1);
    await other.draw(2);
    expect((await other.peek()).shadows).toMatchObject([{ calls: 2, waited: 1 }]);

    const enforced = under([HELD, leakyBucket("50/s")], declared + 2);
    const slotsUs = slotsOf(await enforced.draw(2));
    expect((await enforced.peek()).shadows).toEqual([]);
    expect(slotsUs.map((us) => us - slotsUs[0]!)).toEqual([0, 20_000]);
  });
});
