import { describe, expect, it } from "vitest";
import { fixedWindow } from "../../../../src/core/policy/limit-makers.ts";
import type { CallOptions } from "../../../../src/throttle/call-options.ts";
import { rejectionOf } from "../../../support/async/rejection.ts";
import { createTestBucket } from "../../../support/draws/test-bucket.ts";

const TWO_AN_HOUR = { perKey: { limits: [fixedWindow(2, "1h")] } };

describe("a key that is a path", () => {
  it("is under the limits of its first name where keys have one level", async () => {
    const { bucket } = createTestBucket(TWO_AN_HOUR);

    const slot = await bucket.draw({ key: ["acme", "endpoint-7"] });
    const second = await bucket.tryDraw({ key: ["acme", "endpoint-8"] });
    const third = await bucket.tryDraw({ key: ["acme"] });
    const other = await bucket.tryDraw({ key: ["globex", "endpoint-7"] });

    expect(slot.key).toEqual(["acme", "endpoint-7"]);
    expect([second.allowed, third.allowed, other.allowed]).toEqual([true, false, true]);
    expect((await bucket.tryDraw({ key: "acme" })).allowed).toBe(false);
    expect((await bucket.peek({ key: ["acme", "endpoint-9"] })).limits[0]!.level).toBe(2);
    await bucket.close();
  });

  it.each(["acme/endpoint", "{acme}", "a}b{", "::1", "__proto__", "constructor", " "])(
    "may hold any name, such as %j",
    async (name) => {
      const { bucket } = createTestBucket(TWO_AN_HOUR);
      await bucket.draw({ key: [name, name] });

      const slot = await bucket.draw({ key: name });

      expect(slot.key).toBe(name);
      expect((await bucket.tryDraw({ key: [name, "x"] })).allowed).toBe(false);
      expect((await bucket.tryDraw({ key: `${name} ` })).allowed).toBe(true);
      await bucket.close();
    },
  );

  it.each(["paid", ":paid", "fair", "state"])(
    "may begin with a name that the state of turns also uses: %j",
    async (name) => {
      const { bucket } = createTestBucket({
        rate: "1000/s",
        fair: { floors: { [name]: "10/s", gold: "10/s" } },
      });

      const slots = [
        await bucket.draw({ key: [name, "x", "y"] }),
        await bucket.draw({ key: "gold" }),
        await bucket.draw({ key: [name, "x"], priority: "critical" }),
      ];

      expect(slots.map(({ key }) => key)).toEqual([[name, "x", "y"], "gold", [name, "x"]]);
      await bucket.close();
    },
  );

  it("meets no path of other names, however they are joined", async () => {
    const { bucket } = createTestBucket(TWO_AN_HOUR);
    const keys = [["a", "b"], "a/b", ["a/b", "c"], "a b", ["b", "a"], "ab"];

    const decisions = [];
    for (const key of keys) decisions.push(await bucket.tryDraw({ key }));

    expect(decisions.map(({ remaining }) => remaining)).toEqual([1, 1, 0, 1, 1, 1]);
    await bucket.close();
  });

  it.each<[string, CallOptions]>([
    ["that is given once", { key: ["acme", "endpoint-7"] }],
    ["that is a function of the arguments", { key: (() => ["acme", "endpoint-7"]) as never }],
    ["beside a cost by the arguments", { key: ["acme", "endpoint-7"], cost: () => 1 }],
  ])("is used for the response of a throttled function, as one %s", async (_how, options) => {
    const { bucket } = createTestBucket(TWO_AN_HOUR);
    const keys: unknown[] = [];
    const paced = bucket.throttled(async () => "done", {
      ...(options as object),
      onSlot: ({ key }) => keys.push(key),
    });

    await paced();
    await paced.with({ key: ["globex", "endpoint-1"] })();
    await bucket.run(() => "done", { key: ["acme", "x"], onSlot: ({ key }) => keys.push(key) });

    expect(keys).toEqual([
      ["acme", "endpoint-7"],
      ["globex", "endpoint-1"],
      ["acme", "x"],
    ]);
    const refused = await rejectionOf(paced.with({ maxWaitMs: 1 })());
    expect(refused).toMatchObject({ code: "ERR_WAIT_TOO_LONG", key: ["acme", "endpoint-7"] });
    await bucket.close();
  });

  it("is refused where a function of the arguments answers with a bad one", async () => {
    const { bucket } = createTestBucket(TWO_AN_HOUR);
    const paced = bucket.throttled(() => "done", { key: (() => ["acme", ""]) as () => string[] });

    const refused = await rejectionOf(paced());

    expect(refused).toMatchObject({ code: "ERR_INVALID_OPTION", option: "key[1]", value: "" });
    await bucket.close();
  });

  it("pauses nothing when its last name has no separate limits", async () => {
    const { bucket } = createTestBucket(TWO_AN_HOUR);

    const refused = await rejectionOf(bucket.pause({ key: ["acme", "endpoint-7"] }));
    await bucket.pause({ key: ["acme"] });

    expect(refused).toMatchObject({ option: "key", value: ["acme", "endpoint-7"] });
    expect((refused as Error).message).toContain('name "acme", which stands for all below it');
    expect((await bucket.tryDraw({ key: ["acme", "x"] })).limitedBy).toBe("a pause");
    expect((await bucket.tryDraw({ key: ["globex", "x"] })).allowed).toBe(true);
    await bucket.resume({ key: "acme" });
    expect((await bucket.tryDraw({ key: ["acme", "x"] })).allowed).toBe(true);
    await bucket.close();
  });

  it("lies in the part of its first name where keys are spread", async () => {
    const { bucket } = createTestBucket(TWO_AN_HOUR, { isSpread: true });
    for (const endpoint of ["1", "2"]) await bucket.draw({ key: ["acme", endpoint] });

    const third = await bucket.tryDraw({ key: ["acme", "3"] });

    expect(third.allowed).toBe(false);
    expect((await bucket.peek({ key: "acme" })).limits[0]!.level).toBe(2);
    await bucket.pause({ key: ["acme"] });
    expect((await bucket.peek({ key: ["acme", "9"] })).pausedForMs).toBe(Infinity);
    await bucket.close();
  });
});
