import { median } from "../fleet/measure.ts";
import { usedMemory } from "../fleet/redis-cost.ts";
import type { Flags } from "../flags.ts";
import type { Bench } from "../fleet/run-load.ts";
import { formatNumber, rowOf } from "../promises.ts";
import type { Table } from "../table.ts";
import { openProducer, type Producer } from "./stage.ts";

const OF_TENANT = 100;
/** One of this many tenants is active. */
const ACTIVE_ONE_IN = 10;
const PUT_AT_ONCE = 50;
const ROUNDS = 5;
/** A tenant with one endpoint, which shows the costs of sending apart from the choice of endpoints. */
const SMALL = "small";

/**
 * Measures how long it takes to choose the endpoints of an event, for a tenant with 100 endpoints among many such
 * tenants.
 */
export async function measureManyEndpoints(
  { redis, redisUrl }: Bench,
  { effort }: Flags,
): Promise<Table> {
  await redis.flushall();
  const producer = openProducer(redisUrl);
  const { hooks } = producer;
  const before = await usedMemory(redis);
  for (let from = 0; from < effort.endpoints; from += PUT_AT_ONCE) {
    await Promise.all(Array.from({ length: PUT_AT_ONCE }, (_, at) => put(producer, from + at)));
  }
  await hooks.endpoints.put({ tenant: SMALL, id: "a", url: "https://example.com", types: ["x.y"] });
  const bytes = ((await usedMemory(redis)) - before) / effort.endpoints;
  const tenants = effort.endpoints / OF_TENANT / ACTIVE_ONE_IN;
  const firstMs: number[] = [];
  const laterMs: number[] = [];
  const besidesMs: number[] = [];
  for (let round = 0; round <= ROUNDS; round++) {
    for (let tenant = 0; tenant < tenants; tenant++) {
      const ms = await timeOf(producer, `t-${tenant * ACTIVE_ONE_IN}`);
      (round === 0 ? firstMs : laterMs).push(ms);
      const others = await timeOf(producer, SMALL);
      if (round > 0) besidesMs.push(others);
    }
  }
  await producer.close();
  const choosingMs = median(laterMs) - median(besidesMs);
  return {
    title: `${formatNumber(effort.endpoints)} endpoints stored, ${formatNumber(tenants * OF_TENANT)} of them active, ${OF_TENANT} a tenant`,
    rows: [
      rowOf("choosing the endpoints of an event, ms", choosingMs, { bound: { atMost: 1 } }),
      rowOf(
        "the same, when the tenant's endpoints are read first, ms",
        median(firstMs) - median(besidesMs),
      ),
      rowOf(
        "a whole send without a matching endpoint, of a tenant with one, ms",
        median(besidesMs),
      ),
      rowOf("bytes an endpoint in Redis", bytes, { digits: 0 }),
    ],
  };
}

/** Stores an endpoint with types and a filter, which are compared with each event. */
function put({ hooks }: Producer, number: number): Promise<unknown> {
  return hooks.endpoints.put({
    tenant: `t-${Math.floor(number / OF_TENANT)}`,
    id: `e-${number % OF_TENANT}`,
    url: `https://hooks-${number}.example.com/in`,
    types: ["invoice.*", "order.paid"],
    filter: { amount: { gt: 1_000_000 }, country: { in: ["DE", "FR"] } },
  });
}

/** Returns the time to send an event that no endpoint accepts. */
async function timeOf({ hooks }: Producer, tenant: string): Promise<number> {
  const startMs = performance.now();
  const { endpoints } = await hooks.send({ tenant, type: "invoice.paid", data: { amount: 1 } });
  if (endpoints.length > 0) throw new Error("an endpoint accepted the event");
  return performance.now() - startMs;
}
