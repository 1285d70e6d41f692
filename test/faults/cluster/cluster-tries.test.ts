import { afterAll, beforeAll, expect, it } from "vitest";
import { createSluice } from "sluice";
import { partOf } from "../../../src/throttle/bucket/part-stores.ts";
import { startCluster, type RedisCluster } from "../../support/redis/cluster.ts";

let cluster: RedisCluster;
beforeAll(async () => {
  cluster = await startCluster();
});
afterAll(() => cluster.stop());

/** The first hundred keys that lie in one part of their bucket. */
function keysOfPart(part: number): string[] {
  const keys: string[] = [];
  for (let key = 0; keys.length < 100; key++) {
    if (partOf(`k${key}`) === part) keys.push(`k${key}`);
  }
  return keys;
}

it("the node of a part answers tries for many keys in one script", async () => {
  const sluice = createSluice({ redis: cluster.open(), prefix: "tries" });
  const bucket = sluice.bucket("many", { perKey: { rate: "1/h", burst: 2 } });
  const tryAll = async (): Promise<number> => {
    const tries = keysOfPart(17).map((key) => bucket.tryDraw({ key }));
    return (await Promise.all(tries)).filter(({ allowed }) => allowed).length;
  };

  const allowed = [await tryAll(), await tryAll(), await tryAll()];
  const stats = await Promise.all(
    cluster.primaries.map(({ client }) => client.info("commandstats")),
  );
  await sluice.close();

  expect(allowed).toEqual([100, 100, 0]);
  const reads = stats.map((text) => Number(/cmdstat_mget:calls=(\d+),/.exec(text)?.[1] ?? 0));
  expect(reads.toSorted((a, b) => a - b)).toEqual([0, 0, 3]);
});
