import { expect, it } from "vitest";
import { createMemoryStore } from "../../../src/stores/memory/memory-store.ts";
import { concurrency, leakyBucket } from "../../../src/core/policy/limit-makers.ts";
import { beginVirtualTime } from "../mixes/virtual-time.ts";
import { runPool, type PoolRan, type PoolRun, type ReceivedCall } from "./run-pool.ts";

/** Runs in virtual time over a store in memory. The scripts are those of Redis. */
async function run(given: PoolRun): Promise<PoolRan> {
  const time = beginVirtualTime();
  try {
    const store = createMemoryStore(() =>
      Math.floor((performance.timeOrigin + time.now()) * 1_000),
    );
    return await runPool(given, { store, time });
  } finally {
    time.end();
  }
}

function countOf(calls: readonly ReceivedCall[], member: string, from = 0, to = Infinity): number {
  return calls.filter((call) => call.member === member && call.atMs >= from && call.atMs < to)
    .length;
}

const refused = (): Error =>
  Object.assign(new Error("Too many requests"), {
    status: 429,
    headers: { "retry-after": "60" },
  });
const unreachable = (): Error => Object.assign(new Error("fetch failed"), { code: "ECONNREFUSED" });

/** A minute in which a fake counts the calls of one member. Clocks and the network move calls by up to this much. */
const MINUTE_MS = 60_000;
const MOVED_MS = 20;

it("uses 24 of 24 calls a minute of four members without a single 429", async () => {
  const seen = new Map<string, number[]>();
  let refusals = 0;
  const receive = ({ member, atMs }: ReceivedCall): void => {
    const own = seen.get(member) ?? [];
    seen.set(member, own);
    const since = atMs - MINUTE_MS + MOVED_MS;
    if (own.filter((each) => each > since).length >= 6) {
      refusals += 1;
      throw refused();
    }
    own.push(atMs);
  };
  const rate = "6/min";
  const { calls, errors } = await run({
    members: { a: { rate }, b: { rate }, c: { rate }, d: { rate } },
    replicas: 4,
    callers: 8,
    receive,
    forMs: 5 * MINUTE_MS,
  });

  expect(errors).toEqual([]);
  expect(refusals).toBe(0);
  for (let minute = 0; minute < 5; minute++) {
    const from = minute * MINUTE_MS;
    const inMinute = calls.filter(({ atMs }) => atMs >= from && atMs < from + MINUTE_MS);
    expect(inMinute).toHaveLength(24);
  }
});

it.each([
  [1, 100],
  [4, 100],
  [2, 200],
  [3, 1_000],
])(
  "uses members of rates 10:1 fully with %i replicas, the faster one at %i/s",
  async (replicas, rate) => {
    const forMs = 4_000;

    const { calls, errors, draws } = await run({
      members: { fast: { rate: `${rate}/s` }, slow: { rate: `${rate / 10}/s` } },
      replicas,
      callers: Math.ceil((1.1 * rate * 1.1) / replicas),
      forMs,
    });

    expect(errors).toEqual([]);
    const seconds = forMs / 1_000;
    expect(countOf(calls, "fast") / (seconds * rate)).toBeGreaterThanOrEqual(0.985);
    expect(countOf(calls, "slow") / (seconds * (rate / 10))).toBeGreaterThanOrEqual(0.985);
    expect(countOf(calls, "fast")).toBeLessThanOrEqual(seconds * rate * 1.01);
    expect(countOf(calls, "slow")).toBeLessThanOrEqual(seconds * (rate / 10) + 1);
    expect(draws).toBeLessThanOrEqual(calls.length);
  },
);

it("uses a slow member fully beside one of 20 times its rate", async () => {
  const { calls, errors } = await run({
    members: { fast: { rate: "200/s" }, slow: { rate: "10/s" } },
    replicas: 2,
    callers: 158,
    forMs: 11_000,
  });

  expect(errors).toEqual([]);
  expect(countOf(calls, "fast", 1_000) / 2_000).toBeGreaterThanOrEqual(0.99);
  expect(countOf(calls, "slow", 1_000) / 100).toBeGreaterThanOrEqual(0.99);
});

it("keeps to shared limits, key limits and the members' own units at once", async () => {
  const { calls, errors } = await run({
    members: {
      a: { rate: "60/s", burst: 3, limits: [leakyBucket("600/s", { unit: "tokens", burst: 60 })] },
      b: { rate: "60/s", burst: 3 },
    },
    options: { rate: "80/s", perKey: { rate: "30/s" } },
    replicas: 3,
    callers: 20,
    callOf: (caller) => ({ key: `key ${caller % 4}`, cost: { tokens: 20 } }),
    forMs: 8_000,
  });

  expect(errors).toEqual([]);
  // Tokens let "a" take 30 calls a second, so that "b" takes the rest of 80.
  expect(calls.length / 8).toBeGreaterThanOrEqual(80 * 0.97);
  expect(calls.length / 8).toBeLessThanOrEqual(80 * 1.01);
  expect(countOf(calls, "a") / 8).toBeLessThanOrEqual(30 * 1.02);
  expect(countOf(calls, "b") / 8).toBeLessThanOrEqual(60 * 1.02);
  for (const caller of [0, 1, 2, 3]) {
    const own = calls.filter((call) => call.caller % 4 === caller);
    expect(own.length / 8).toBeLessThanOrEqual(30 * 1.02);
  }
});

it("fills the leases of all members, and no more", async () => {
  const running = new Map<string, number>();
  let most = 0;
  const time = beginVirtualTime();
  try {
    const store = createMemoryStore(() =>
      Math.floor((performance.timeOrigin + time.now()) * 1_000),
    );
    const { calls, errors } = await runPool(
      {
        members: { a: { limits: [concurrency(5)] }, b: { limits: [concurrency(2)] } },
        replicas: 3,
        callers: 10,
        async receive({ member }) {
          running.set(member, (running.get(member) ?? 0) + 1);
          most = Math.max(most, running.get("b") ?? 0);
          expect(running.get("a") ?? 0).toBeLessThanOrEqual(5);
          expect(running.get("b") ?? 0).toBeLessThanOrEqual(2);
          await time.sleep(100);
          running.set(member, running.get(member)! - 1);
        },
        forMs: 6_000,
      },
      { store, time },
    );

    expect(errors).toEqual([]);
    expect(most).toBe(2);
    // Seven at once, each for 100 ms, and a round trip until the next one starts.
    expect(calls.length / 6).toBeGreaterThanOrEqual(70 * 0.95);
  } finally {
    time.end();
  }
});

it("starts calls in the order in which they came, over all replicas and members", async () => {
  const { calls } = await run({
    members: { a: { rate: "20/s" }, b: { rate: "5/s" } },
    replicas: 4,
    callers: 5,
    options: { fair: false },
    forMs: 8_000,
  });

  // A call passes another one only within one horizon, or at the same moment on another member.
  const started = calls.filter(({ atMs }) => atMs > 2_000);
  const passed = started.filter((call, index) =>
    started.slice(0, index).some((before) => before.sinceMs > call.sinceMs + 300),
  );
  expect(passed).toEqual([]);
});

it("cools only the member that refuses calls", async () => {
  const { calls, errors } = await run({
    members: { a: { rate: "50/s" }, b: { rate: "50/s" } },
    replicas: 3,
    callers: 20,
    receive({ member, atMs }) {
      if (member === "b" && atMs >= 2_000 && atMs < 2_100) {
        throw Object.assign(new Error("Too many requests"), {
          status: 429,
          headers: { "retry-after": "3" },
        });
      }
    },
    forMs: 8_000,
  });

  expect(errors.length).toBeGreaterThan(0);
  // A round trip and the calls that had started.
  expect(countOf(calls, "b", 2_200, 4_900)).toBe(0);
  for (let from = 0; from < 8_000; from += 1_000) {
    expect(countOf(calls, "a", from, from + 1_000)).toBeGreaterThanOrEqual(48);
  }
  expect(countOf(calls, "b", 5_000, 8_000)).toBeGreaterThan(50);
});

it("loses at most a second of the share of a member that dies, and nothing of the others'", async () => {
  const { calls, errors } = await run({
    members: { a: { rate: "50/s" }, b: { rate: "20/s" }, c: { rate: "5/s" } },
    replicas: 3,
    callers: 20,
    receive({ member, atMs }) {
      if (member === "b" && atMs >= 2_000 && atMs < 5_500) throw unreachable();
    },
    forMs: 12_000,
  });

  // Each replica notices by itself, and one second later again.
  expect(errors.length).toBeLessThanOrEqual(20);
  for (let from = 0; from < 12_000; from += 1_000) {
    expect(countOf(calls, "a", from, from + 1_000)).toBeGreaterThanOrEqual(48);
    expect(countOf(calls, "c", from, from + 1_000)).toBeGreaterThanOrEqual(4);
  }
  // It is back within a second, and at its whole rate a second later.
  expect(countOf(calls, "b", 6_500, 7_500)).toBeGreaterThan(5);
  expect(countOf(calls, "b", 8_000, 12_000)).toBeGreaterThanOrEqual(80 * 0.97);
});

it("fills the preferred member first, and spills to the next one only then", async () => {
  const options = { prefer: ["cheap", "paid"] };
  const members = { paid: { rate: "50/s" }, cheap: { rate: "50/s" } };
  const few = await run({ members, options, replicas: 2, callers: 1, forMs: 5_000 });
  const many = await run({ members, options, replicas: 2, callers: 30, forMs: 5_000 });

  expect(countOf(few.calls, "paid")).toBe(0);
  expect(countOf(few.calls, "cheap")).toBeGreaterThan(50);
  expect(countOf(many.calls, "cheap") / 250).toBeGreaterThanOrEqual(0.97);
  expect(countOf(many.calls, "paid") / 250).toBeGreaterThanOrEqual(0.9);
});

it.each([1, 2, 4])(
  "uses a shared limit fully with preferred members and %i replicas, and prefers one while few calls wait",
  async (replicas) => {
    const options = { prefer: ["cheap", "paid"], rate: "80/s" };
    const each = { rate: "50/s", burst: 3 };
    const common = { members: { paid: each, cheap: each }, options, replicas, forMs: 6_000 };
    const many = await run({ ...common, callers: Math.ceil(60 / replicas) });
    const few = await run({ ...common, replicas: 1, callers: 2 });

    const inSteadyState = many.calls.filter(({ atMs }) => atMs >= 1_000);
    expect(inSteadyState.length / 400).toBeGreaterThanOrEqual(0.96);
    expect(inSteadyState.length / 400).toBeLessThanOrEqual(1.01);
    expect(countOf(many.calls, "cheap", 1_000) / 250).toBeGreaterThanOrEqual(0.97);
    expect(countOf(few.calls, "paid")).toBe(0);
  },
);

// Without bursts, two calls under 90/s are at least 11.1 ms apart, two calls at 60/s 16.7 ms, and two at 40/s 25 ms. The
// best order is then a, b, a, b, which takes 25 ms for two calls. With 80/s and 20/s, it is four calls of a and one of b.
it.each([
  { a: 60, b: 40, shared: 90, most: 80 },
  { a: 50, b: 50, shared: 80, most: 80 },
  { a: 80, b: 20, shared: 90, most: 83.7 },
])(
  "starts all $most calls a second that $a/s and $b/s without bursts can start under $shared/s",
  async ({ a, b, shared, most }) => {
    const { calls, errors } = await run({
      members: { a: { rate: `${a}/s` }, b: { rate: `${b}/s` } },
      options: { prefer: ["a", "b"], rate: `${shared}/s` },
      replicas: 2,
      callers: 60,
      forMs: 6_000,
    });

    expect(errors).toEqual([]);
    const started = calls.filter(({ atMs }) => atMs >= 1_000).length / 5;
    expect(started / most).toBeGreaterThanOrEqual(0.97);
    expect(started / most).toBeLessThanOrEqual(1.01);
  },
);

it("keeps each key at its member while that member is free soon enough", async () => {
  const members = { a: { rate: "50/s" }, b: { rate: "50/s" }, c: { rate: "50/s" } };
  const callOf = (caller: number) => ({ key: `key ${caller}` });
  const common = { members, replicas: 2, callOf, forMs: 5_000 };
  const calm = await run({ ...common, callers: 2, options: { stickyBy: "key" } });
  const one = await run({
    ...common,
    callers: 30,
    callOf: () => ({ key: "hot" }),
    options: { stickyBy: "key", stickyMs: 30 },
  });

  for (const caller of [0, 1]) {
    const own = calm.calls.filter((call) => call.caller === caller);
    expect(new Set(own.map(({ member }) => member)).size).toBe(1);
  }
  // One hot key alone may use all members: its calls do not wait longer than 30 ms for their own.
  expect(one.calls.length / 5).toBeGreaterThanOrEqual(150 * 0.9);
});

it("uses a free member while keys of a full one wait for it", async () => {
  const { calls, errors } = await run({
    members: { m0: { rate: "5/s" }, m1: { rate: "100/s" } },
    replicas: 2,
    callers: 28,
    // The member of "k0" is "m0", and the other keys have "m1".
    callOf: (caller) => ({ key: `k${caller % 5}` }),
    options: { stickyBy: "key" },
    forMs: 8_000,
  });

  expect(errors).toEqual([]);
  expect(countOf(calls, "m0") / 40).toBeGreaterThanOrEqual(0.97);
  expect(countOf(calls, "m1") / 800).toBeGreaterThanOrEqual(0.95);
  // A call waits one second for its own member, and then for at most half a second for any.
  expect(Math.max(...calls.map(({ atMs, sinceMs }) => atMs - sinceMs))).toBeLessThanOrEqual(1_500);
});

it("moves the keys of a member that refuses to another one at once", async () => {
  const { calls } = await run({
    members: { m0: { rate: "50/s" }, m1: { rate: "50/s" } },
    replicas: 2,
    callers: 5,
    callOf: (caller) => ({ key: `k${caller}` }),
    options: { stickyBy: "key" },
    receive: ({ member }) => {
      if (member === "m0") throw refused();
    },
    forMs: 5_000,
  });

  // A call that was sent before the first 429 may still reach "m0".
  expect(countOf(calls, "m0")).toBeGreaterThan(0);
  expect(countOf(calls, "m0", 500)).toBe(0);
  expect(countOf(calls, "m1") / 250).toBeGreaterThanOrEqual(0.95);
  const later = calls.filter(({ atMs }) => atMs > 1_000);
  expect(Math.max(...later.map(({ atMs, sinceMs }) => atMs - sinceMs))).toBeLessThanOrEqual(800);
});

it("uses four members fully through one replica", async () => {
  const { calls, draws } = await run({
    members: { a: { rate: "50/s" }, b: { rate: "100/s" }, c: { rate: "10/s" }, d: { rate: "5/s" } },
    replicas: 1,
    callers: 70,
    forMs: 8_000,
  });

  expect(calls.length / 8).toBeGreaterThanOrEqual(165 * 0.97);
  expect(draws / calls.length).toBeLessThanOrEqual(0.2);
});

it("lets calls of different keys take turns in the line of the pool", async () => {
  const { calls, errors } = await run({
    members: { a: { rate: "20/s" }, b: { rate: "10/s" } },
    replicas: 3,
    callers: 20,
    // Nineteen callers of a replica have one key, and one caller has the other.
    callOf: (caller) => ({ key: caller === 0 ? "light" : "heavy" }),
    options: { fair: { weights: { light: 1 } } },
    forMs: 8_000,
  });

  expect(errors).toEqual([]);
  const light = calls.filter(({ caller, atMs }) => caller === 0 && atMs > 1_000);
  // Three callers of the light key, each of which waits for at most one turn of the other key.
  expect(light.length / 7).toBeGreaterThanOrEqual(10);
  expect(calls.length / 8).toBeGreaterThanOrEqual(30 * 0.97);
});

it.each([
  ["one replica", 1, 1],
  ["three replicas", 3, 1],
  ["three replicas with many such calls", 3, 4],
])(
  "lets calls use other members while a large call waits for its only one, with %s",
  async (_, replicas, large) => {
    const cost = 40;
    const { calls, errors, draws } = await run({
      members: {
        a: { rate: "50/s", burst: 2 },
        b: { rate: "50/s", burst: 2 },
        big: { rate: "50/s", burst: 50 },
      },
      options: { fair: false },
      replicas,
      callers: 20,
      callOf: (caller) => (caller < large ? { cost } : {}),
      forMs: 10_000,
    });

    expect(errors).toEqual([]);
    const unitsOf = (member: string): number =>
      calls
        .filter((call) => call.member === member)
        .reduce((sum, { caller }) => sum + (caller < large ? cost : 1), 0);
    expect(unitsOf("a") / 500).toBeGreaterThanOrEqual(0.97);
    expect(unitsOf("b") / 500).toBeGreaterThanOrEqual(0.97);
    expect(unitsOf("big") / 500).toBeGreaterThanOrEqual(0.97);
    // The large calls use most of the only member that allows them.
    expect(calls.filter(({ caller }) => caller < large).length * cost).toBeGreaterThanOrEqual(250);
    expect(draws).toBeLessThanOrEqual(calls.length);
  },
);

it("lets calls use other members while calls that only one member may take wait for it", async () => {
  const members = { a: { rate: "50/s" }, b: { rate: "2/s" } };
  const callOf = (caller: number) => (caller < 5 ? { member: "b" } : {});
  const { calls, errors } = await run({ members, replicas: 3, callers: 15, callOf, forMs: 10_000 });

  expect(errors).toEqual([]);
  expect(countOf(calls, "a") / 500).toBeGreaterThanOrEqual(0.97);
  expect(countOf(calls, "b") / 20).toBeGreaterThanOrEqual(0.9);
});
