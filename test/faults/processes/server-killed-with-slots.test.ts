import { Redis } from "ioredis";
import { describe, expect, inject, it, onTestFinished } from "vitest";
import { concurrency, tokenBucket } from "sluice";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { scriptProcesses, type ScriptProcess } from "../../support/children/script-process.ts";
import { postTo } from "../../support/server/service.ts";
import { startTcpProxy } from "../../support/servers/tcp-proxy.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const sluices = realSluices();
const processes = scriptProcesses();

const LEASE_MS = 1_000;
/** Longer than a lease lasts that nobody renews. */
const LONGER_MS = 3 * LEASE_MS;
const HELD = { cost: { tokens: 400 }, holdMs: 60_000 };

interface Server {
  readonly process: ScriptProcess;
  readonly post: ReturnType<typeof postTo>;
}

/** As many servers as are asked for, each a process, or one of several workers. */
async function start(
  count: number,
  { workers = 1, redis = inject("redisUrl") } = {},
): Promise<Server[]> {
  const started = Array.from({ length: count }, () =>
    processes.start("test/support/processes/service-replica.ts", {
      args: [redis, sluices.prefix(), String(LEASE_MS), String(workers)],
    }),
  );
  const areListening = (): boolean =>
    started.every(({ stdout }) => stdout.split("\n").length > workers);
  await waitUntil(areListening, "the servers listen");
  return started.map((process) => ({ process, post: postTo(process.stdout.split("\n")[0]!) }));
}

async function kill({ process }: Server): Promise<void> {
  process.signal("SIGKILL");
  await process.ended;
}

/** What is left of the tokens of a bucket with as many calls at once. */
async function remaining(name: string, calls: ReturnType<typeof concurrency>): Promise<number> {
  const tokens = tokenBucket({ capacity: 10_000, refill: "1/h", unit: "tokens" });
  const bucket = sluices.open().bucket(name, { limits: [tokens, calls] });
  return (await bucket.peek()).limits[0]!.remaining;
}

describe("a slot that a server granted", () => {
  it("is settled once, by whichever server is first, and released after its server was killed", async () => {
    const [giver, other] = (await start(2)) as [Server, Server];
    const drawn = await giver.post("/v1/buckets/gpt/draw", HELD);
    const path = `/v1/slots/${drawn.json.slot.id}`;

    const settled = await Promise.all(
      Array.from({ length: 10 }, async (_, index) => {
        const { post } = index % 2 === 0 ? giver : other;
        const tokens = 1_000 + index;
        return { tokens, ...(await post(`${path}/settle`, { cost: { tokens } })) };
      }),
    );
    await kill(giver);
    const released = await other.post(`${path}/release`, { cost: { tokens: 5_000 } });
    const late = await other.post(`${path}/release`);
    const next = await other.post("/v1/buckets/gpt/draw", { maxWaitMs: 30_000 });

    const booked = settled.filter(({ json }) => json.booked === true);
    expect(settled.every(({ status }) => status === 200)).toBe(true);
    expect(booked).toHaveLength(1);
    expect(released).toMatchObject({ status: 200, json: { booked: false } });
    expect(late.status).toBe(404);
    expect(late.headers["content-type"]).toContain("application/problem+json");
    expect(next.status).toBe(200);
    const left = await remaining("gpt", concurrency(1, { leaseMs: LEASE_MS }));
    expect(left).toBe(10_000 - booked[0]!.tokens);
  });

  it("has its cost booked although the server was killed before its reply", async () => {
    const { port } = new URL(inject("redisUrl"));
    const proxy = await startTcpProxy(Number(port));
    onTestFinished(() => proxy.close());
    const [dying] = await start(1, { redis: `redis://127.0.0.1:${proxy.port}` });
    const [other] = await start(1);
    const drawn = await dying!.post("/v1/buckets/gpt/draw", HELD);
    // From here on, Redis knows the scripts.
    const before = await other!.post("/v1/buckets/lost/draw", HELD);
    const known = { cost: { tokens: 100 } };
    await other!.post(`/v1/slots/${before.json.slot.id}/settle`, known);
    const path = `/v1/slots/${drawn.json.slot.id}`;
    const redis = new Redis(inject("redisUrl"));
    onTestFinished(() => redis.disconnect());

    proxy.set("lose replies");
    const lost = rejectionOf(dying!.post(`${path}/settle`, { cost: { tokens: 1_000 } }));
    const notes = `${sluices.prefix()}:{gpt}:slot:*`;
    await waitUntil(async () => (await redis.keys(notes)).length > 0, "it is noted as settled");
    await kill(dying!);
    await lost;
    const settled = await other!.post(`${path}/settle`, { cost: { tokens: 5_000 } });

    expect(settled).toMatchObject({ status: 200, json: { booked: false } });
    expect(await remaining("gpt", concurrency(1, { leaseMs: LEASE_MS }))).toBe(9_000);
  });

  it("keeps its lease if another server renews it; otherwise the lease ends after leaseMs", async () => {
    const [giver, other] = (await start(2)) as [Server, Server];
    const kept = await giver.post("/v1/buckets/gpt/draw", HELD);
    const lost = await giver.post("/v1/buckets/lost/draw", HELD);
    const path = `/v1/slots/${kept.json.slot.id}`;
    await kill(giver);

    const renewed = await other.post(`${path}/renew`, { holdMs: 60_000 });
    const freed = await other.post("/v1/buckets/lost/draw", { maxWaitMs: 30_000 });
    const refused = await other.post("/v1/buckets/gpt/draw", { maxWaitMs: LONGER_MS });
    const tooLate = await other.post(`/v1/slots/${lost.json.slot.id}/renew`, { holdMs: 60_000 });
    const settled = await other.post(`${path}/release`, { cost: { tokens: 100 } });
    const next = await other.post("/v1/buckets/gpt/draw", { maxWaitMs: 30_000 });

    expect([renewed.status, freed.status]).toEqual([200, 200]);
    expect([refused.status, tooLate.status]).toEqual([429, 410]);
    expect(settled).toMatchObject({ status: 200, json: { booked: true } });
    expect(next.status).toBe(200);
    expect(await remaining("gpt", concurrency(1, { leaseMs: LEASE_MS }))).toBe(9_900);
  });
});

describe("two processes on one port", () => {
  it("release each other's slots", async () => {
    const [{ post }] = (await start(1, { workers: 2 })) as [Server];
    const drawing = Array.from({ length: 4 }, () => post("/v1/buckets/many/draw", HELD));
    const drawn = await Promise.all(drawing);
    const givers = new Set(drawn.map(({ headers }) => headers["x-process"]));
    const statuses = [];

    for (const { json, headers } of drawn) {
      const path = `/v1/slots/${json.slot.id}`;
      await waitUntil(async () => {
        const renewed = await post(`${path}/renew`, { holdMs: 60_000 });
        expect(renewed.status).toBe(200);
        return renewed.headers["x-process"] !== headers["x-process"];
      }, "the other process is asked");
      const released = await post(`${path}/release`, { cost: { tokens: 100 } });
      const again = await post(`${path}/release`);
      statuses.push(released.status, again.status);
    }

    expect(givers.size).toBe(2);
    expect(statuses).toEqual(drawn.flatMap(() => [200, 404]));
    expect(await remaining("many", concurrency(100))).toBe(9_600);
  });
});
