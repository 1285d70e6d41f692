import { expect, it } from "vitest";
import { concurrency, tokenBucket } from "sluice";
import { ownRedisServers } from "../../support/redis/own-redis.ts";
import { services } from "../../support/server/service.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const redises = ownRedisServers();
const servers = services();

it("rejects requests for slots while Redis is unreachable, and applies each repeated request once", async () => {
  const redis = await redises.start();
  const sluice = redis.open({ storeTimeoutMs: 300 });
  const tokens = tokenBucket({ capacity: 1_000, refill: "1/h", unit: "tokens" });
  const alone = concurrency(1, { leaseMs: 60_000 });
  const bucket = sluice.bucket("gpt", { limits: [tokens, alone] });
  sluice.bucket("jobs", { limits: [alone] });
  const service = await servers.start(sluice);
  const drawn = await service.post("/v1/buckets/gpt/draw", { cost: { tokens: 400 } });
  const job = await service.post("/v1/buckets/jobs/draw", {});
  const path = `/v1/slots/${drawn.json.slot.id}`;
  const ask = {
    renew: () => service.post(`${path}/renew`, { holdMs: 60_000 }),
    settle: () => service.post(`${path}/settle`, { cost: { tokens: 100 } }),
    release: () => service.post(`/v1/slots/${job.json.slot.id}/release`),
  };

  // What a stopped Redis gets, it does later.
  redis.signal("SIGSTOP");
  const away = [await ask.renew(), await ask.settle(), await ask.release()];
  redis.signal("SIGCONT");
  await waitUntil(async () => (await ask.renew()).status === 200, "Redis is asked again");
  const settled = [await ask.settle(), await ask.settle()];
  const released = await ask.release();

  for (const { status, headers, json } of away) {
    expect(status).toBe(503);
    expect(Number(headers["retry-after"])).toBeGreaterThan(0);
    expect(headers["content-type"]).toContain("application/problem+json");
    expect(json).toMatchObject({ code: "ERR_STORE_UNAVAILABLE" });
    expect(json.detail).toContain("takes effect only once");
    expect(json.detail).toContain("ends by itself");
  }
  expect(settled.map(({ status }) => status)).toEqual([200, 200]);
  // Whether the first one reached Redis.
  expect([200, 404]).toContain(released.status);
  const { limits } = await bucket.peek();
  expect(limits[0]!.remaining).toBe(900);
  expect((await service.post("/v1/buckets/jobs/draw", { maxWaitMs: 20_000 })).status).toBe(200);
});
