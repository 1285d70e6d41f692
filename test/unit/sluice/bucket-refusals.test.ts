import { afterEach, describe, expect, it } from "vitest";
import {
  createSluice,
  fixedWindow,
  InvalidOptionError,
  leakyBucket,
  slidingLog,
  tokenBucket,
  type Sluice,
} from "sluice";
import { rejectionOf } from "../../support/async/rejection.ts";

const tierOf = (): string => "free";
const FIFTY = tokenBucket({ capacity: 50, refill: "1/s" });
const ONE = { rate: "1/s" };

let opened: Sluice[] = [];
afterEach(async () => {
  await Promise.all(opened.map((sluice) => sluice.close()));
  opened = [];
});

function open(): { readonly sluice: Sluice } {
  const log = (): void => {};
  const sluice = createSluice({ redis: "memory", logger: { warn: log, error: log } });
  opened.push(sluice);
  return { sluice };
}

describe("the options of a bucket", () => {
  it.each([
    ["", { rate: "1/s" }, "name"],
    ["a{b}", { rate: "1/s" }, "name"],
    ["b", { rate: "0/s" }, "rate"],
    ["b", {}, "rate"],
    ["b", undefined, "options"],
    ["b", { rate: "1/s", burst: 0 }, "burst"],
    ["b", { rate: "1/s", burst: 2.5 }, "burst"],
    ["b", { rate: "1/s", perKey: { rate: "0/s" } }, "perKey.rate"],
    ["b", { rate: "1/s", perKey: { rates: "5/s" } }, "perKey.rates"],
    ["b", { rate: "1/s", perKey: "5/s" }, "perKey"],
    ["b", { rate: "1/s", perKey: null }, "perKey"],
    ["b", { rate: "1/s", perKey: Promise.resolve({ rate: "5/s" }) }, "perKey"],
    ["b", { limits: [] }, "limits"],
    ["b", { perKey: { limits: [] } }, "perKey.limits"],
    ["b", { perKey: [] }, "perKey"],
    ["b", { perKey: [{}, undefined] }, "perKey"],
    ["b", { perKey: [ONE, ONE, ONE, ONE] }, "perKey"],
    ["b", { perKey: [ONE, { rate: "0/s" }] }, "perKey[1].rate"],
    ["b", { perKey: [ONE, { rates: "5/s" }] }, "perKey[1].rates"],
    ["b", { perKey: [ONE, null] }, "perKey[1]"],
    ["b", { perKey: [ONE, "5/s"] }, "perKey[1]"],
    ["b", { perKey: [ONE, [ONE]] }, "perKey[1]"],
    ["b", { perKey: [ONE, { tiers: { a: { rate: "x" } }, tierOf }] }, "perKey[1].tiers.a.rate"],
    [
      "b",
      { perKey: [{ limits: [fixedWindow(5, "1d")] }, { limits: [FIFTY] }] },
      "perKey[1].capacity",
    ],
    ["b", { perKey: { address: ONE, email: { rate: "0/s" } } }, "perKey.email.rate"],
    ["b", { perKey: { address: ONE, rate: "1/s" } }, "perKey.address"],
    ["b", { perKey: { bucket: ONE } }, "perKey.bucket"],
    ["b", { perKey: { day: ONE } }, "perKey.day"],
    ["b", { perKey: { "a\nb": ONE } }, String.raw`perKey[a\nb]`],
    ["b", { perKey: { a: ONE, b: ONE, c: ONE, d: ONE } }, "perKey"],
    ["b", { perKey: { address: {}, email: {} } }, "perKey"],
    ["b", { limits: ["5/s"] }, "limits[0]"],
    ["b", { limits: [{ kind: "leaky-bucket", count: Number.NaN }] }, "limits[0]"],
    ["b", { rate: "1/s", concurrency: 0 }, "concurrency"],
    ["b", { rate: "1/s", shares: { low: 2 } }, "shares.low"],
    ["b", { rate: "1/s", fair: { weights: { gold: -1 } } }, "fair.weights.gold"],
    ["b", { rate: "1/s", fair: { floors: { small: "2/s" } } }, "fair.floors"],
    ["b", { rate: "1/s", fair: { floors: { small: { tokens: "1/s" } } } }, "fair.floors.small"],
    ["b", { perKey: { rate: "1/s" }, fair: { floors: { small: "1/s" } } }, "fair.floors"],
    ["b", { rate: "1/s", fair: { turns: true } }, "fair.turns"],
    ["b", { rate: "1/s", fair: "weights" }, "fair"],
    ["b", { rate: "1/s", maxWaiting: -1 }, "maxWaiting"],
    ["b", { rate: "1/s", onStoreDown: "retry" }, "onStoreDown"],
    ["b", { rate: "1/s", onStoreDown: { local: 0 } }, "onStoreDown"],
    ["b", { rate: "1/s", onStoreDown: { local: 1.5 } }, "onStoreDown"],
    ["b", { rate: "1/s", onStateLost: "half" }, "onStateLost"],
    ["b", { rate: "1/s", adaptive: { floor: 0, recoverMs: 1_000 } }, "adaptive.floor"],
    ["b", { rate: "100/s", burst: 50, limits: [slidingLog(20, "1s")] }, "burst"],
    ["b", { limits: [fixedWindow(5, "1d"), leakyBucket("5/s", { burst: 50 })] }, "burst"],
    ["b", { limits: [fixedWindow(5, "1d"), FIFTY] }, "capacity"],
    ["b", { rate: { calls: 1, per: "1s", burst: 5 } }, "rate.burst"],
    ["b", { perKey: { tiers: {}, tierOf, rate: "5/s" } }, "perKey.rate"],
    ["b", { perKey: { tiers: {}, tierOf, tiersof: tierOf } }, "perKey.tiersof"],
  ])("of %j are refused as %j with the name of the option", (name, policy, option) => {
    const { sluice } = open();
    const create = (): unknown => sluice.bucket(name, policy as never);

    expect(create).toThrow(InvalidOptionError);
    expect(create).toThrow(`option "${option}"`);
  });

  it.each([
    [{ perKey: { rate: "1/x" } }, 'bucket("q"): option "perKey.rate" is "1/x"'],
    [
      { perKey: { tiers: { free: { rate: "1/x" } }, tierOf } },
      'bucket("q"): option "perKey.tiers.free.rate" is "1/x"',
    ],
    [
      { perKey: { tiers: { "a b": { rat: "1/s" } }, tierOf } },
      'bucket("q"): option "perKey.tiers[a b].rat" is "1/s"',
    ],
    [
      { perKey: { tiers: { free: null }, tierOf } },
      'bucket("q"): option "perKey.tiers.free" is null',
    ],
    [{ perKey: [FIFTY] }, "give a list of limits as { limits: [...] }"],
    [
      { perKey: { tiers: {}, tierOf, rate: "5/s" } },
      'option "perKey.rate" is "5/s"; give limits inside each tier',
    ],
    [
      { perKey: { tiers: {}, tierOf, tierOff: 1 } },
      'option "perKey.tierOff" is 1; there is no such option; did you mean tierOf?',
    ],
    [
      { limits: [fixedWindow(5, "1d"), FIFTY] },
      "lets no more than 5 pass at once; give a capacity of 5 or less",
    ],
    [
      { perKey: { limits: [FIFTY] }, limits: [fixedWindow(5, "1d")] },
      'bucket("q"): option "perKey.capacity" is 50',
    ],
    [
      { rate: { calls: 1, per: "1s", burst: 5 } },
      'option "rate.burst" is 5; a rate has only calls and per',
    ],
    [{}, 'bucket("q"): option "rate" is undefined; a bucket needs a limit'],
    [{ limits: [] }, "a bucket needs a limit"],
  ])("with a mistake in %j are refused with its position: %s", (policy, message) => {
    const { sluice } = open();
    const create = (): unknown => sluice.bucket("q", policy as never);

    expect(create).toThrow(message);
  });

  it("name the mistake in the limits that a function returned", async () => {
    const { sluice } = open();
    const bucket = sluice.bucket("q", { perKey: () => ({ rate: "1/x" as string }) });

    const refused = await rejectionOf(bucket.draw({ key: "k" }));

    expect(refused).toMatchObject({
      message: expect.stringContaining('bucket("q"): option "perKey.rate"'),
    });
  });
});
