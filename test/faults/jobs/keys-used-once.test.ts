import { describe, expect, it } from "vitest";
import { ownRedisServers, type OwnRedis } from "../../support/redis/own-redis.ts";
import { reportFigures } from "../../support/docs/report-figures.ts";

const KEYS = 20_000;
const AT_ONCE = 500;
/** A key's own state goes a minute after its limits have drained. */
const KEY_TTL_MS = 62_000;
/** That of a bucket, and what stands beside it, after an hour. */
const BUCKET_TTL_MS = 3_700_000;
const servers = ownRedisServers();

/** All keys on the server, and in how many ms each expires; -1 for never. */
async function expiries({ operator }: OwnRedis): Promise<ReadonlyMap<string, number>> {
  const found = new Map<string, number>();
  for await (const batch of operator.scanStream({ count: 1_000 })) {
    const names = batch as string[];
    const pipeline = operator.pipeline();
    for (const name of names) pipeline.pttl(name);
    const replies = (await pipeline.exec()) ?? [];
    for (const [index, name] of names.entries()) found.set(name, Number(replies[index]![1]));
  }
  return found;
}

describe("20,000 keys that are used once", () => {
  it.each([
    ["drawn", "draw"],
    ["tried", "tryDraw"],
  ] as const)("and %s leave no key in Redis that does not expire", async (_name, how) => {
    const redis = await servers.start();
    const policy = { rate: "1000000/s", burst: KEYS, perKey: { rate: "100/s" } };
    const bucket = redis.open().bucket("b", policy);
    for (let first = 0; first < KEYS; first += AT_ONCE) {
      const names = Array.from({ length: AT_ONCE }, (_, index) => `once ${first + index}`);
      await Promise.all(names.map((key) => bucket[how]({ key })));
    }

    const all = [...(await expiries(redis))];

    // What processes tell of themselves is kept longer.
    const found = all.filter(([name]) => !name.includes("{:fleet}"));
    const ofKeys = found.filter(([name]) => name.includes("once "));
    const longestMs = Math.max(...ofKeys.map(([, ttlMs]) => ttlMs));
    reportFigures(`${KEYS.toLocaleString("en")} keys are used once, by ${how}`, {
      "names in Redis": found.length,
      "longest life of a key's state, ms": longestMs,
    });
    expect(all.filter(([, ttlMs]) => ttlMs === -1)).toEqual([]);
    expect(ofKeys.length).toBeGreaterThanOrEqual(KEYS);
    expect(longestMs).toBeLessThanOrEqual(KEY_TTL_MS);
    expect(found.length - ofKeys.length).toBeLessThan(20);
    expect(Math.max(...found.map(([, ttlMs]) => ttlMs))).toBeLessThanOrEqual(BUCKET_TTL_MS);
  });
});
