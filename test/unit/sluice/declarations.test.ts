import { describe, expect, it } from "vitest";
import { z } from "zod";
import {
  InvalidOptionError,
  type Bucket,
  type BucketOptions,
  type Queue,
  type QueueOptions,
} from "sluice";
import { unconnectedSluices } from "../../support/setup/unconnected-sluice.ts";

const same = (): undefined => undefined;
const tierOf = (): string => "free";
const schema = z.object({ amount: z.number() });

const open = unconnectedSluices();

describe("a bucket that is declared again", () => {
  type Declared = Omit<BucketOptions, "rate">;

  function declareTwice(first: Declared, later: Declared): Bucket[] {
    const sluice = open();
    return [first, later].map((options) => sluice.bucket("b", { rate: "10/s", ...options }));
  }

  it.each<[string, Declared, Declared]>([
    ["leaves options out", { maxWaiting: 5, feedback: same, pace: "headers" }, {}],
    ["has the same function", { feedback: same }, { feedback: same }],
    [
      "has the same values in another order",
      { adaptive: { floor: 0.1, recoverMs: 1_000 }, onStoreDown: { local: 0.5 } },
      { onStoreDown: { local: 0.5 }, adaptive: { recoverMs: 1_000, floor: 0.1 } },
    ],
    [
      "has a table of the same tiers",
      { perKey: { tiers: { free: { rate: "1/s" } }, tierOf } },
      { perKey: { tierOf, tiers: { free: { rate: "1/s" } } } },
    ],
  ])("is the same object when it %s", (_which, first, later) => {
    const [one, other] = declareTwice(first, later);

    expect(other).toBe(one);
  });

  it.each<[string, Declared, Declared]>([
    ["maxWaiting", { maxWaiting: 5 }, { maxWaiting: 6 }],
    ["maxWaiting", {}, { maxWaiting: 5 }],
    ["onStoreDown", { onStoreDown: { local: 0.5 } }, { onStoreDown: { local: 0.4 } }],
    ["onStateLost", { onStateLost: "empty" }, { onStateLost: "full" }],
    ["maxCooldownMs", { maxCooldownMs: 5 }, { maxCooldownMs: 6 }],
    ["pace", {}, { pace: "headers" }],
    ["feedback", { feedback: false }, { feedback: same }],
    ["feedback", {}, { feedback: same }],
    ["feedback", { feedback: same }, { feedback: () => undefined }],
    ["perKey", { perKey: () => ({ rate: "1/s" }) }, { perKey: () => ({ rate: "2/s" }) }],
    [
      "perKey",
      { perKey: { tiers: { free: { rate: "1/s" } }, tierOf } },
      { perKey: { tiers: { free: { rate: "2/s" } }, tierOf } },
    ],
  ])("is refused with the name of %s when that differs", (option, first, later) => {
    const declare = (): unknown => declareTwice(first, later);

    expect(declare).toThrow(InvalidOptionError);
    expect(declare).toThrow(`bucket("b"): option "${option}" is `);
  });

  it("is rejected with the advice to declare it once, when only its functions differ", () => {
    const perKey = () => ({ tiers: { free: { rate: "1/s" } }, tierOf: () => "free" as const });
    const again = { perKey: perKey() };

    expect(() => declareTwice({ perKey: perKey() }, again)).toThrow(
      /with other functions or schemas of the same text; make it once, and keep it\.$/,
    );
    expect(() => declareTwice({}, again)).toThrow(/with another before; give both the same\.$/);
  });
});

describe("a queue that is declared again", () => {
  type Declared = Omit<QueueOptions<unknown>, "bucket">;

  function declareTwice(first: Declared, later: Declared): Queue<unknown>[] {
    const sluice = open();
    const bucket = sluice.bucket("b", { rate: "10/s" });
    return [first, later].map((options) => sluice.queue<unknown>("jobs", { bucket, ...options }));
  }

  it.each<[string, Declared, Declared]>([
    ["leaves options out", { weights: { gold: 3 }, maxJobBytes: 500, schema }, {}],
    ["names the default", {}, { maxJobBytes: 1_000_000, keepDone: { count: 1_000 } }],
    ["has the same schema", { schema }, { schema }],
    [
      "has the same weights in another table",
      { weights: { gold: 3, silver: 2 } },
      { weights: { silver: 2, gold: 3 } },
    ],
  ])("is the same object when it %s", (_which, first, later) => {
    const [one, other] = declareTwice(first, later);

    expect(other).toBe(one);
  });

  it.each<[string, Declared, Declared]>([
    ["weights", { weights: { gold: 3 } }, { weights: { gold: 2 } }],
    ["weights", { weights: { gold: 3 } }, { weights: { gold: 3, silver: 2 } }],
    ["weights", {}, { weights: { gold: 3 } }],
    ["weights", { weights: () => 1 }, { weights: () => 2 }],
    ["maxJobBytes", { maxJobBytes: 500 }, { maxJobBytes: 1_000_000 }],
    ["keepDone", { keepDone: { count: 5 } }, { keepDone: { count: 6 } }],
    ["keepDone", {}, { keepDone: { forMs: 60_000 } }],
    ["schema", {}, { schema }],
    ["schema", { schema }, { schema: z.object({ amount: z.number() }) }],
  ])("is refused with the name of %s when that differs", (option, first, later) => {
    const declare = (): unknown => declareTwice(first, later);

    expect(declare).toThrow(InvalidOptionError);
    expect(declare).toThrow(`queue("jobs"): option "${option}" is `);
  });

  it.each<[unknown, string]>([
    [{ count: -1 }, "keepDone.count"],
    [{ count: 0.5 }, "keepDone.count"],
    [{ forMs: 0 }, "keepDone.forMs"],
    [{ ageMs: 5 }, "keepDone.ageMs"],
    [5, "keepDone"],
  ])("is refused when it cannot keep done jobs with %j", (keepDone, option) => {
    const declare = (): unknown => declareTwice({ keepDone: keepDone as never }, {});

    expect(declare).toThrow(expect.objectContaining({ code: "ERR_INVALID_OPTION", option }));
  });
});
