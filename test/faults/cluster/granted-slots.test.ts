import { expect, it, onTestFinished } from "vitest";
import { concurrency, createSluice, tokenBucket, type SluiceOptions } from "sluice";
import { startOwnCluster } from "../../support/redis/cluster.ts";
import { ownRedisServers } from "../../support/redis/own-redis.ts";
import { services } from "../../support/server/service.ts";

const servers = services();
const redises = ownRedisServers();

const KEYS = Array.from({ length: 12 }, (_, index) => `tenant-${index}`);

async function onCluster(): Promise<() => SluiceOptions> {
  const cluster = await startOwnCluster();
  return () => ({ redis: cluster.open() });
}

async function onShards(): Promise<() => SluiceOptions> {
  const urls: string[] = [];
  for (let shard = 0; shard < 3; shard++) urls.push((await redises.start()).url);
  return () => ({ shards: urls });
}

it.each([
  ["a cluster", onCluster],
  ["independent servers", onShards],
])("on %s, other servers settle, renew and release a slot", async (_where, begin) => {
  const options = await begin();
  const limits = () => [
    tokenBucket({ capacity: 1_000, refill: "1/h", unit: "tokens" }),
    concurrency(1),
  ];
  const open = () => {
    const sluice = createSluice(options());
    onTestFinished(() => sluice.close());
    // One whose keys are spread over a cluster, and some that lie whole on a node each.
    const keyed = sluice.bucket("keyed", { perKey: { limits: limits() } });
    const whole = KEYS.map((name) => sluice.bucket(name, { limits: limits() }));
    return { sluice, keyed, whole };
  };
  const [first, second] = [open(), open()];
  const [giver, other] = [await servers.start(first.sluice), await servers.start(second.sluice)];
  const calls = KEYS.flatMap((key) => [
    { path: "/v1/buckets/keyed/draw", key },
    { path: `/v1/buckets/${key}/draw`, key: undefined },
  ]);

  const settled = await Promise.all(
    calls.map(async ({ path, key }) => {
      const draw = { key, cost: { tokens: 400 }, maxWaitMs: 20_000 };
      const drawn = await giver.post(path, draw);
      const slot = `/v1/slots/${drawn.json.slot.id}`;
      const renewed = await other.post(`${slot}/renew`, { holdMs: 60_000 });
      const both = await Promise.all(
        [giver, other].map((server) => server.post(`${slot}/settle`, { cost: { tokens: 100 } })),
      );
      const booked = both.filter(({ json }) => json.booked === true).length;
      const released = await other.post(`${slot}/release`);
      const again = await giver.post(`${slot}/release`);
      const next = await giver.post(path, draw);
      return [drawn, renewed, ...both, released, again, next]
        .map(({ status }) => status)
        .concat(booked);
    }),
  );

  expect(settled).toEqual(calls.map(() => [200, 200, 200, 200, 200, 404, 200, 1]));
  const left = await Promise.all([
    ...KEYS.map((key) => second.keyed.peek({ key })),
    ...second.whole.map((bucket) => bucket.peek()),
  ]);
  expect(
    left.map((peeked) => peeked.limits.find(({ unit }) => unit === "tokens")!.remaining),
  ).toEqual(calls.map(() => 500));
});
