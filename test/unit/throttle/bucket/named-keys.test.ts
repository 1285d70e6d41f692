import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { NamedKeys } from "../../../../src/core/key-path.ts";
import { fixedWindow } from "../../../../src/core/policy/limit-makers.ts";
import type { BucketOptions } from "../../../../src/throttle/bucket/bucket-options.ts";
import { rejectionOf } from "../../../support/async/rejection.ts";
import { createTestBucket } from "../../../support/draws/test-bucket.ts";

const LOGINS: BucketOptions = {
  perKey: {
    address: { limits: [fixedWindow(10, "1min"), fixedWindow(15, "1h")] },
    email: { limits: [fixedWindow(5, "1min")] },
  },
};
const login = (address: string, email: string) => ({ keys: { address, email } });

beforeEach(() => {
  vi.useFakeTimers();
  vi.setSystemTime(3_600_000 * 500_000);
});
afterEach(() => {
  vi.useRealTimers();
});

describe("keys side by side", () => {
  it("limit logins by address and by e-mail, all or none", async () => {
    const { bucket } = createTestBucket(LOGINS);
    const tries = [];
    for (let n = 0; n < 7; n++) tries.push(await bucket.tryDraw(login("10.0.0.1", "a@b.c")));
    for (let n = 0; n < 7; n++) tries.push(await bucket.tryDraw(login("10.0.0.1", `${n}@b.c`)));

    const counts = [tries.slice(0, 7), tries.slice(7)].map(
      (each) => each.filter(({ allowed }) => allowed).length,
    );
    expect(counts).toEqual([5, 5]);
    expect(tries[6]!.limitedBy).toBe("5 each 1min (email)");
    expect(tries[13]!.limitedBy).toBe("10 each 1min (address)");
    expect(
      tries[0]!.limits.map(({ scope, level, remaining }) => [scope, level, remaining]),
    ).toEqual([
      ["address", undefined, 9],
      ["address", undefined, 14],
      ["email", undefined, 4],
    ]);
    // What refused took nothing of the others.
    const ofMail = await bucket.peek({ keys: { email: "6@b.c" } });
    expect(ofMail.limits.map(({ level }) => level)).toEqual([0]);
    await bucket.close();
  });

  it("are the same in any order, and apart from each other", async () => {
    const { bucket } = createTestBucket(LOGINS);
    await bucket.tryDraw({ keys: { address: "x", email: "y" } });
    await bucket.tryDraw({ keys: { email: "y", address: "x" } });
    await bucket.tryDraw({ keys: { email: "x", address: "y" } });

    const { limits } = await bucket.peek({ keys: { address: "x", email: "y" } });

    expect(limits.map(({ level }) => level)).toEqual([2, 2, 2]);
    await bucket.close();
  });

  it("may be left out, but not all of them where nothing else limits a call", async () => {
    const { bucket } = createTestBucket(LOGINS);

    const one = await bucket.tryDraw({ keys: { email: "a@b.c", address: undefined as never } });
    const none = await rejectionOf(bucket.tryDraw());

    expect(one.limits.map(({ scope }) => scope)).toEqual(["email"]);
    expect(none).toMatchObject({ option: "keys" });
    await bucket.close();
  });

  it.each([
    [{ keys: { adress: "x" } }, "keys.adress", "did you mean address?"],
    [{ keys: JSON.parse('{ "__proto__": "x" }') as object }, "keys.__proto__", "no such name"],
    [{ key: "10.0.0.1" }, "key", "perKey has the names address, email; give keys instead"],
    [{ key: "x", keys: { address: "x" } }, "keys", "either key or keys"],
    [{ keys: { address: 5 } }, "keys.address", "give a string"],
    [{ keys: { address: "x".repeat(1_000_000) } }, "keys.address", "1 to 256 characters"],
    [{ keys: { a: "1", b: "2", c: "3", d: "4" } }, "keys", "one to 3 keys"],
  ])("are refused as %j", async (options, option, remedy) => {
    const { bucket } = createTestBucket(LOGINS);

    for (const call of [bucket.tryDraw(options as never), bucket.draw(options as never)]) {
      const refused = await rejectionOf(call);
      expect(refused).toMatchObject({ code: "ERR_INVALID_OPTION", option });
      expect((refused as Error).message).toContain(remedy);
    }
    await bucket.close();
  });

  it("may have any name that is a plain one, such as __proto__", async () => {
    const perKey = JSON.parse('{ "__proto__": { "rate": "1/h" } }') as never;
    const { bucket } = createTestBucket({ perKey });
    const keys = JSON.parse('{ "__proto__": "x" }') as never;

    const slot = await bucket.draw({ keys });

    expect(Object.entries(slot.keys!)).toEqual([["__proto__", "x"]]);
    expect((await bucket.tryDraw({ keys })).limitedBy).toBe("1/h (__proto__)");
    await bucket.close();
  });

  it("are refused where the bucket has limits by level, or none per key", async () => {
    for (const options of [
      { rate: "1/s" },
      { perKey: { rate: "1/s" } },
      { perKey: [{ rate: "1/s" }] },
    ]) {
      const { bucket } = createTestBucket(options as BucketOptions);
      const refused = await rejectionOf(bucket.tryDraw({ keys: { address: "x" } }));
      expect(refused).toMatchObject({ option: "keys" });
      expect((refused as Error).message).toMatch(/^(?:test|bucket\("test"\)): option/);
      await bucket.close();
    }
  });

  it("are paused one by one, and reported by name", async () => {
    const { bucket } = createTestBucket(LOGINS);
    const told: unknown[] = [];
    bucket.on("refused", ({ key, keys, limitedBy }) => told.push([key, keys, limitedBy]));

    await bucket.pause({ keys: { address: "10.0.0.1" } });
    const refused = await bucket.tryDraw(login("10.0.0.1", "a@b.c"));
    const other = await bucket.tryDraw(login("10.0.0.2", "a@b.c"));
    const both = await rejectionOf(bucket.pause(login("10.0.0.1", "a@b.c")));

    expect([refused.allowed, other.allowed]).toEqual([false, true]);
    expect(told).toEqual([
      [undefined, { address: "10.0.0.1", email: "a@b.c" }, "a pause (address)"],
    ]);
    expect(both).toMatchObject({ option: "keys" });
    await bucket.close();
  });

  it("may be functions of the arguments, and take the place of others", async () => {
    const { bucket } = createTestBucket(LOGINS);
    const told: unknown[] = [];
    const paced = bucket.throttled((email: string) => email, {
      keys: (email) => (email === "bad" ? ({ email: 5 } as never) : { address: "x", email }),
      onSlot: ({ keys }) => told.push(keys),
    });

    await paced("a@b.c");
    await paced.with({ keys: { address: "y" } })("a@b.c");
    const bad = await rejectionOf(paced("bad"));

    expect(told).toEqual([{ address: "x", email: "a@b.c" }, { address: "y" }]);
    expect(bad).toMatchObject({ option: "keys.email", value: 5 });
    await bucket.close();
  });

  it.each([
    ["plain ones", { address: "10.0.0.1", email: "a@b.c" }],
    ["others", { address: "10.0.0.1", email: "é ü" }],
    ["those without a prototype", Object.assign(Object.create(null), { address: "10.0.0.1" })],
  ])("are counted alike by draws and by tries: %s", async (_what, keys: NamedKeys) => {
    const { bucket } = createTestBucket(LOGINS);

    await bucket.tryDraw({ keys });
    await bucket.draw({ keys, cost: 1 });
    await bucket.tryDraw({ keys });

    expect((await bucket.peek({ keys })).limits.map(({ level }) => level)).toContain(3);
    await bucket.close();
  });

  it("wait together for what one of them lacks", async () => {
    const { bucket } = createTestBucket({
      perKey: { address: { rate: "10/s" }, email: { rate: "1/s" } },
    });
    const order: string[] = [];
    const call = (address: string, email: string): Promise<unknown> =>
      bucket.run(() => order.push(`${address} ${email}`), login(address, email));

    const calls = [call("1", "a"), call("2", "a"), call("1", "b"), call("2", "c")];
    await vi.advanceTimersByTimeAsync(1_500);
    await Promise.all(calls);

    expect(order[0]).toBe("1 a");
    expect(order.at(-1)).toBe("2 a");
    await bucket.close();
  });

  it("cool down by the name that feedback gives, or all of the call", async () => {
    const refusal = Object.assign(new Error("429"), { status: 429 });
    for (const [scope, cooled] of [
      ["email", [false, true]],
      [undefined, [true, true]],
    ] as const) {
      const { bucket } = createTestBucket({
        ...LOGINS,
        feedback: () => ({ coolMs: 5_000, scope }),
      });
      await rejectionOf(bucket.run(() => Promise.reject(refusal), login("x", "y")));
      await vi.advanceTimersByTimeAsync(1);
      const states = await Promise.all([
        bucket.peek({ keys: { address: "x" } }),
        bucket.peek({ keys: { email: "y" } }),
      ]);
      expect(states.map(({ coolingForMs }) => coolingForMs > 0)).toEqual(cooled);
      await bucket.close();
    }
  });
});
