import { randomInt } from "node:crypto";
import { expect, it } from "vitest";
import { concurrency, leakyBucket, type BucketOptions } from "sluice";
import { worstWindow } from "sluice/testing";
import { children, type Child } from "../../support/children/child.ts";
import { jobCalls, startLaneWorkers, type JobCall } from "../../support/jobs/lane-workers.ts";
import { reportFigures } from "../../support/docs/report-figures.ts";
import { extraSlots } from "../../support/draws/steady-draws.ts";
import { ownRedisServers, type OwnRedis } from "../../support/redis/own-redis.ts";
import { useDownstream } from "../../support/servers/use-downstream.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const LATENCY_MS = 40;
const WORKERS = 4;
const CONCURRENCY = 20;
const RATE = 120;
const PER_CUSTOMER = { perSecond: 60, atOnce: 6 };
const PER_ENDPOINT = 25;
const POLICY: BucketOptions = {
  rate: `${RATE}/s`,
  perKey: [
    {
      limits: [
        leakyBucket(`${PER_CUSTOMER.perSecond}/s`),
        // A lease of a dead worker ends by itself, when its call has long been answered.
        concurrency(PER_CUSTOMER.atOnce, { leaseMs: 1_000 }),
      ],
    },
    { rate: `${PER_ENDPOINT}/s` },
  ],
};
/** Customers of many endpoints and of few. */
const ENDPOINTS: readonly (readonly [customer: string, endpoints: number])[] = [
  ["acme", 20],
  ["globex", 4],
  ["initech", 2],
];
const JOBS_EACH = 250;
const JOBS = ENDPOINTS.length * JOBS_EACH;

const processes = children();
const servers = ownRedisServers();
const downstream = useDownstream({ latencyMs: LATENCY_MS });

const calls = (): JobCall[] => jobCalls(downstream.arrivals);

async function setUp() {
  const redis = await servers.start(["--appendonly", "yes", "--appendfsync", "always"]);
  const sluice = redis.open({ prefix: "t" });
  const bucket = sluice.bucket("downstream", POLICY);
  const queue = sluice.queue<string>("jobs", { bucket });
  await queue.pause();
  for (const [customer, endpoints] of ENDPOINTS) {
    const names = Array.from({ length: JOBS_EACH }, (_, at) => `${customer} ${at}`);
    await queue.enqueueMany(names, (_name, at) => ({ key: [customer, `e${at % endpoints}`] }));
  }
  const start = (count: number): Child[] =>
    startLaneWorkers(processes, count, {
      redis: redis.url,
      prefix: "t",
      policy: POLICY,
      url: downstream.url,
      concurrency: CONCURRENCY,
      lockMs: 2_000,
      storeTimeoutMs: 30_000,
    });
  const workers = start(WORKERS);
  await waitUntil(() => workers.every(({ messages }) => messages.length > 0), "all are ready");
  await queue.resume();
  return { redis, queue, workers, start };
}

/** Kills one of them, has another begin, and returns the pid of the dead one. */
function replaceOne(workers: Child[], start: (count: number) => Child[]): number {
  const [doomed] = workers.splice(randomInt(workers.length), 1);
  doomed!.signal("SIGKILL");
  workers.push(...start(1));
  return doomed!.pid;
}

/** The most calls beyond what the limits of all, of each customer and of each endpoint allow in any time. */
function extraCalls(): Record<string, number> {
  const below = (path: string): JobCall[] =>
    calls().filter(({ key }) => `${key},`.startsWith(path));
  const extra = (path: string, perSecond: number): number =>
    extraSlots(
      below(path).map(({ slotMs }) => slotMs),
      { perSecond },
    );
  const ofCustomers = ENDPOINTS.map(([customer]) => extra(`${customer},`, PER_CUSTOMER.perSecond));
  const ofEndpoints = ENDPOINTS.flatMap(([customer, endpoints]) =>
    Array.from({ length: endpoints }, (_, at) => extra(`${customer},e${at},`, PER_ENDPOINT)),
  );
  // Each call holds its lease for as long as the downstream takes: no more lie within that time.
  const atOnce = ENDPOINTS.map(([customer]) => {
    const times = below(`${customer},`).map(({ atMs }) => atMs);
    return worstWindow(times, LATENCY_MS - 5) - PER_CUSTOMER.atOnce;
  });
  return {
    ofAll: extra("", RATE),
    ofCustomers: Math.max(...ofCustomers),
    ofEndpoints: Math.max(...ofEndpoints),
    atOnce: Math.max(0, ...atOnce),
  };
}

/** How many of the first calls were of each customer. */
function sharesOf(first: number): number[] {
  const some = calls().slice(0, first);
  return ENDPOINTS.map(
    ([customer]) => some.filter(({ key }) => key.startsWith(`${customer},`)).length,
  );
}

it.each([
  ["three workers are killed", async () => undefined],
  ["three workers are killed while Redis crashes", (redis: OwnRedis) => redis.crash()],
])("customers and endpoints keep their limits, turns and jobs while %s", async (name, strike) => {
  const { redis, queue, workers, start } = await setUp();
  const dead: number[] = [];

  for (const reached of [150, 300, 450]) {
    await waitUntil(() => calls().length >= reached, `${reached} calls are made`);
    dead.push(replaceOne(workers, start));
    await strike(redis);
  }
  const done = (): number => new Set(calls().map(({ job }) => job)).size;
  await waitUntil(() => done() === JOBS, "each job has reached the downstream");
  await waitUntil(async () => {
    const { active, waiting, delayed } = await queue.counts();
    return active + waiting + delayed === 0;
  }, "the queue is empty");

  const shares = sharesOf(JOBS / 2);
  const again = calls().length - JOBS;
  reportFigures(`customers and endpoints, ${name}`, {
    again,
    ...extraCalls(),
    least: Math.min(...shares),
    most: Math.max(...shares),
  });
  expect((await queue.counts()).failed).toBe(0);
  expect(extraCalls()).toEqual({ ofAll: 0, ofCustomers: 0, ofEndpoints: 0, atOnce: 0 });
  expect(again).toBeLessThanOrEqual(dead.length * CONCURRENCY);
  // A third each, although one has ten times the endpoints of another. Less on a busy machine, where
  // the calls of a customer hold its leases for longer, while the others take what it leaves. The
  // leases of a killed worker hold its customer back for a second.
  const untilTheFirstDeath = sharesOf(150);
  expect(Math.min(...untilTheFirstDeath)).toBeGreaterThan(0.5 * 50);
  expect(Math.min(...shares)).toBeGreaterThan((0.5 * JOBS) / 6);
});
