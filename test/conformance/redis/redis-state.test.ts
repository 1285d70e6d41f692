import { randomUUID } from "node:crypto";
import { Redis } from "ioredis";
import { afterAll, beforeAll, beforeEach, describe, expect, inject, it } from "vitest";
import { leakyBucket } from "../../../src/core/policy/limit-makers.ts";
import {
  NO_POSITION,
  type DrawReply,
  type DrawRequest,
  type SlotRequest,
} from "../../../src/core/store.ts";
import { runScript, type Argument, type Script } from "../../../src/stores/redis/scripts/script.ts";
import { slotsDraw, type SlotsDraw } from "../../../src/stores/redis/scripts/bucket/slots-draw.ts";
import { slotsReturn } from "../../../src/stores/redis/scripts/bucket/give-back.ts";
import { policyOf, slotsOf } from "../../support/draws/test-replica.ts";

let redis: Redis;
let prefix: string;
beforeAll(() => {
  redis = new Redis(inject("redisUrl"));
});
beforeEach(() => {
  prefix = `t${randomUUID()}`;
});
afterAll(async () => {
  await redis.quit();
});

const { limits, shares, text } = policyOf({ rate: "10/s", burst: 3 });
const terms = { limits, shares, text, version: 0 };
const slotRequest: SlotRequest = {
  name: " 1",
  scopes: [],
  costs: [1],
  wanted: 1,
  rank: 2,
  isBounded: false,
  sinceUs: 0,
  nextSinceUs: 0,
  lastSinceUs: 0,
};
const request: DrawRequest = {
  bucket: "b",
  asker: "a",
  terms,
  slotRequests: [slotRequest],
  horizonUs: 100_000,
  drewUs: 0,
  position: NO_POSITION,
  leases: 0,
  lease: 1,
  isTry: false,
};
/** As many slots as there are. */
const greedy = [{ ...slotRequest, wanted: 50 }];
const slow = { ...terms, limits: [leakyBucket("1/2d")] };
const fromLimit = (wrong: object): object => ({
  terms: { ...terms, limits: [{ ...limits[0], ...wrong }] },
});
const fromKeyLimit = (wrong: object): object => {
  const scope = { key: "k", limits: [{ ...limits[0]!, ...wrong }], position: NO_POSITION };
  return fromSlotRequest({ scopes: [scope], costs: [1, 1] });
};
const fromSlotRequest = (wrong: object): object => ({
  slotRequests: [{ ...slotRequest, ...wrong }],
});
/** The arguments with another code for the kind of the first limit, which follows on 7 numbers, 5 of terms and a count. */
function withKind(args: readonly Argument[], code: number): Argument[] {
  // The limits are among the first numbers; those of the slot requests follow.
  return args.map((arg, index) => (index === 2 ? (arg as readonly number[]).with(14, code) : arg));
}
const keysOf = async (): Promise<string[]> => (await redis.keys(`${prefix}*`)).sort();

describe("a bucket's keys in Redis", () => {
  it("share one hash tag, and each expires by itself", async () => {
    // On a clock that stands still, since a slot whose time has passed leaves no hole.
    const pinnedUs = 1_790_000_000_000_000;
    const drawn = { ...request, prefix, pinnedUs, slotRequests: greedy };
    const first = await runScript(redis, slotsDraw, drawn);
    await runScript(redis, slotsDraw, { ...drawn, asker: "other" });
    await runScript(redis, slotsReturn, {
      prefix,
      pinnedUs,
      bucket: "b",
      asker: "a",
      terms,
      position: first.position,
      slotRequest,
      generation: first.generation,
      slotsUs: [first.nowUs + 50_000],
    });

    const keys = await keysOf();

    expect(keys).toEqual(["holes", "line", "state"].map((name) => `${prefix}:{b}:${name}`));
    for (const key of keys) expect(await redis.pttl(key)).toBeGreaterThan(0);
  });

  it("outlive the debt of a slow bucket", async () => {
    await runScript(redis, slotsDraw, { ...request, prefix, terms: slow });

    const twoDaysMs = 2 * 86_400_000;
    expect(await redis.pttl(`${prefix}:{b}:state`)).toBeGreaterThanOrEqual(twoDaysMs);
  });

  it("keep their turns until the last of them is due, which is half a second at most", async () => {
    await runScript(redis, slotsDraw, { ...request, prefix, terms: slow });

    await runScript(redis, slotsDraw, { ...request, prefix, terms: slow, asker: "late" });

    expect(await redis.pttl(`${prefix}:{b}:line`)).toBeGreaterThan(60_000);
  });

  it.each<[string, object]>([
    ["less than none wanted", fromSlotRequest({ wanted: -1 })],
    ["half a call wanted", fromSlotRequest({ wanted: 1.5 })],
    ["NaN wanted", fromSlotRequest({ wanted: Number.NaN })],
    ["2^53 wanted", fromSlotRequest({ wanted: 2 ** 53 })],
    ["a negative cost", fromSlotRequest({ costs: [-1] })],
    ["half a cost", fromSlotRequest({ costs: [0.5] })],
    ["a cost of NaN", fromSlotRequest({ costs: [Number.NaN] })],
    ["an infinite cost", fromSlotRequest({ costs: [Infinity] })],
    ["an unknown rank", fromSlotRequest({ rank: 4 })],
    ["a negative rank", fromSlotRequest({ rank: -1 })],
    ["a negative horizon", { horizonUs: -1 }],
    ["a negative version", { terms: { ...terms, version: -1 } }],
    ["half a version", { terms: { ...terms, version: 0.5 } }],
    ["NaN for the last draw", { drewUs: Number.NaN }],
    ["2^53 for the next lease", { lease: 2 ** 53 }],
    ["-2^53 for its turn", { position: { ...NO_POSITION, turnUs: -(2 ** 53) } }],
    ["a count of zero", fromLimit({ count: 0 })],
    ["a period of NaN", fromLimit({ periodUs: Number.NaN })],
    ["a period of zero", fromLimit({ periodUs: 0 })],
    ["a negative capacity", fromLimit({ capacity: -1 })],
    ["a capacity of 1.5", fromLimit({ capacity: 1.5 })],
    ["a bad limit of a key", fromKeyLimit({ count: 0 })],
  ])("are not written by a script that gets %s", async (_what, bad) => {
    const refused = runScript(redis, slotsDraw, { ...request, prefix, ...bad });

    await expect(refused).rejects.toThrow("SLUICE_BAD_ARGUMENT");
    expect(await keysOf()).toEqual([]);
  });

  it("are not written by a script that gets an unknown kind of limit", async () => {
    const unknown: Script<SlotsDraw, DrawReply> = {
      ...slotsDraw,
      args: (input) => withKind(slotsDraw.args(input), 99),
    };

    const refused = runScript(redis, unknown, { ...request, prefix });

    await expect(refused).rejects.toThrow("SLUICE_BAD_ARGUMENT");
    expect(await keysOf()).toEqual([]);
  });

  it("keep the same bytes after a rejected cost", async () => {
    await runScript(redis, slotsDraw, { ...request, prefix, slotRequests: greedy });
    const before = await redis.dump(`${prefix}:{b}:state`);

    const refused = runScript(redis, slotsDraw, {
      ...request,
      prefix,
      slotRequests: [{ ...slotRequest, costs: [4] }],
    });

    await expect(refused).rejects.toThrow("SLUICE_COST_TOO_LARGE 4 3");
    expect(await redis.dump(`${prefix}:{b}:state`)).toEqual(before);
  });

  it("are still used after the server lost its scripts", async () => {
    const first = await runScript(redis, slotsDraw, {
      ...request,
      prefix,
      slotRequests: [{ ...slotRequest, wanted: 3 }],
    });
    await redis.script("FLUSH");

    const second = await runScript(redis, slotsDraw, { ...request, prefix });

    expect(slotsOf(second)[0]).toBe(slotsOf(first)[0]! + 100_000);
  });
});
