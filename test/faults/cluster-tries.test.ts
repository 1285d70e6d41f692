import { afterAll, beforeAll, expect, it } from "vitest";
import { createSluice } from "sluice";
import { startCluster, type RedisCluster } from "../support/cluster.ts";

let cluster: RedisCluster;
beforeAll(async () => {
  cluster = await startCluster();
});
afterAll(() => cluster.stop());

it("tries for many keys of a bucket are answered by the node of the bucket, all in one script", async () => {
  const sluice = createSluice({ redis: cluster.open(), prefix: "tries" });
  const bucket = sluice.bucket("many", { perKey: { rate: "1/h", burst: 2 } });
  const tryAll = async (): Promise<number> => {
    const tries = Array.from({ length: 100 }, (_, key) => bucket.tryDraw({ key: `k${key}` }));
    return (await Promise.all(tries)).filter(({ allowed }) => allowed).length;
  };

  const allowed = [await tryAll(), await tryAll(), await tryAll()];
  const owner = await cluster.ownerOf("many");
  const stats = await owner!.client.info("commandstats");
  await sluice.close();

  expect(allowed).toEqual([100, 100, 0]);
  expect(stats).toMatch(/cmdstat_mget:calls=2,/);
});
