import { afterEach, expect, it } from "vitest";
import {
  createSluice,
  leakyBucket,
  type LimitsOptions,
  type PolicyOptions,
  type Sluice,
} from "sluice";
import { compilePolicy } from "../../src/core/policy/policy.ts";
import { createWeights } from "../../src/queue/lanes/lane-options.ts";
import { createGroups } from "../../src/throttle/waiting/group.ts";
import type { SlotContext } from "../../src/throttle/slot/slot.ts";
import { rejectionOf } from "../support/async/rejection.ts";
import { SILENT } from "./support/outcomes.ts";

let sluice: Sluice | undefined;
afterEach(() => sluice?.close());

function openBucket(options: PolicyOptions) {
  sluice = createSluice({ logger: SILENT });
  return sluice.bucket("b", options);
}

const INVALID = { code: "ERR_INVALID_OPTION" };

it("never takes a promise of a key's limits for no limits", async () => {
  const limitsOf = (key: string): LimitsOptions =>
    key === "free" ? {} : (Promise.resolve({ rate: "1/h" }) as LimitsOptions);
  const bucket = openBucket({ rate: "1000/s", burst: 10, perKey: limitsOf });
  await bucket.tryDraw({ key: "free" });

  const error = await rejectionOf(bucket.tryDraw({ key: "paid" }));

  expect(error).toMatchObject({ ...INVALID, option: "perKey" });
});

it("says so when a function of keys gives what JSON cannot hold", async () => {
  const bucket = openBucket({ perKey: () => ({ rate: "1/s", burst: 5n }) as never });

  const error = await rejectionOf(bucket.tryDraw({ key: "a" }));

  expect(error).toMatchObject({ ...INVALID, option: "perKey.burst" });
});

it("says so when a policy is configured with a number for perKey", async () => {
  const bucket = openBucket({ rate: "1/s" });

  const error = await rejectionOf(bucket.configure({ perKey: 5 as never }));

  expect(error).toMatchObject({ ...INVALID });
});

it("says so when a call is settled with null", async () => {
  const slot = await openBucket({ rate: "1/s" }).draw();

  const error = await rejectionOf(slot.settle(null as never));

  expect(error).toMatchObject({ ...INVALID, option: "cost" });
});

it("keeps calls of a key apart from those of another whose costs read like its name", () => {
  const one = leakyBucket("1/s", { burst: 9 });
  const perKey = (key: string): LimitsOptions => ({ limits: key === "a" ? [one, one] : [one] });
  const policy = compilePolicy("test", { limits: [one], perKey });
  const groups = createGroups({ name: "test" } as SlotContext, () => policy);

  const [long, short] = [groups.of({ key: "1 a" }), groups.of({ key: "a" })];

  expect(long.name).not.toBe(short.name);
});

it("refuses weights that are none when the queue is made", () => {
  const make = (): unknown => createWeights("q", { acme: -1 });

  expect(make).toThrow(expect.objectContaining({ ...INVALID, option: "weights" }));
});

it("looks a weight up among the table's own", () => {
  const weightsOf = createWeights("q", JSON.parse('{"__proto__": 2, "acme": 3}'));

  expect(["constructor", "acme", "__proto__"].map(weightsOf)).toEqual([[1], [3], [2]]);
});

it("reports an impossible limit from the caller as such, and not as an outage of Redis", () => {
  const align = { at: "00:00", timeZone: "Mars/Base" };
  const byHand = { ...leakyBucket("5/s"), kind: "fixed-window", align };

  const make = (): unknown => openBucket({ limits: [byHand] });

  expect(make).toThrow(expect.objectContaining({ ...INVALID, option: "limits[0]" }));
});

it("rejects a bad listener when it is added", () => {
  sluice = createSluice({ logger: SILENT });

  const listen = (): unknown => sluice!.on("store", 5 as never);

  expect(listen).toThrow(expect.objectContaining({ ...INVALID, option: "listener" }));
});
