import { Queue } from "bullmq";
import { importBuild } from "../compare/import-build.ts";
import type { Flags } from "../flags.ts";
import { median } from "../fleet/measure.ts";
import { watchRedisCost } from "../fleet/redis-cost.ts";
import type { Bench } from "../fleet/run-load.ts";
import { connectionTo } from "../limiters/bullmq.ts";
import { formatNumber, rowOf } from "../promises.ts";
import type { Row, Table } from "../table.ts";
import { PLAIN_QUEUE, type PlainWebhook, type SenderSetup } from "./messages.ts";
import { LOCAL, openProducer, startReceiver, startSender, type Receiver } from "./stage.ts";

const ENDPOINTS = 20;
const CONCURRENCY = 100;
const STORED_AT_ONCE = 50;
const DATA = { invoice: 1, amount: 1_200, currency: "EUR", note: "x".repeat(500) };
const TYPE = "invoice.paid";

export interface Done {
  readonly perSecond: number;
  /** CPU time per delivery: of the sender with its start, of Redis, and of all processes including the receiver. */
  readonly senderUs: number;
  readonly redisUs: number;
  readonly allUs: number;
}

type Kind = SenderSetup["kind"];
const KINDS: readonly Kind[] = ["bullmq", "sluice"];

/** Compares one process of the full sender with one whose jobs only post, alternately. */
export async function measureThroughput(bench: Bench, { effort }: Flags): Promise<Table> {
  const receiver = await startReceiver();
  const done: Record<Kind, Done[]> = { sluice: [], bullmq: [] };
  for (let round = 0; round < effort.cpuRounds; round++) {
    for (const kind of KINDS)
      done[kind].push(await deliver(bench, receiver, { kind, count: effort.deliveries }));
  }
  await receiver.end();
  const of = (kind: Kind, what: keyof Done): number => median(done[kind].map((each) => each[what]));
  const row = (figure: string, what: keyof Done): Row => ({
    figure,
    values: {
      sluice: formatNumber(of("sluice", what), 0),
      bullmq: formatNumber(of("bullmq", what), 0),
    },
  });
  const ratio = of("sluice", "perSecond") / of("bullmq", "perSecond");
  const ofCpu = of("bullmq", "allUs") / of("sluice", "allUs");
  return {
    title: `${formatNumber(effort.deliveries)} webhooks to ${ENDPOINTS} endpoints, one sender with ${CONCURRENCY} at once, beside BullMQ jobs that only post`,
    rows: [
      row(`deliveries a second, median of ${effort.cpuRounds}`, "perSecond"),
      rowOf("deliveries a second, of BullMQ's", ratio, { bound: { atLeast: 0.7 } }),
      row("CPU of the sender a delivery, its start included, µs", "senderUs"),
      row("CPU of Redis a delivery, µs", "redisUs"),
      row("CPU of both and the receiver a delivery, µs", "allUs"),
      rowOf("deliveries for the same CPU, of BullMQ's", ofCpu),
    ],
  };
}

export interface Deliveries extends Pick<SenderSetup, "kind" | "build"> {
  readonly count: number;
}

/** Stores this many webhooks, and lets one sender deliver them all. */
export async function deliver(
  { redis, redisUrl }: Bench,
  receiver: Receiver,
  { kind, build, count }: Deliveries,
): Promise<Done> {
  await redis.flushall();
  if (kind === "sluice") await storeMessages(redisUrl, receiver.url, count, build);
  else await storeJobs(redisUrl, receiver.url, count);
  const all = receiver.expect(count);
  const costSince = await watchRedisCost(redis);
  const sender = startSender({ kind, build, redisUrl, concurrency: CONCURRENCY, options: LOCAL });
  const tookMs = await all;
  const { cpuUs } = await costSince();
  const report = await receiver.report();
  const senderUs = await sender.end();
  return {
    perSecond: (count / tookMs) * 1_000,
    senderUs: senderUs / count,
    redisUs: cpuUs / count,
    allUs: (senderUs + cpuUs + report.cpuUs) / count,
  };
}

async function storeMessages(
  redisUrl: string,
  url: string,
  count: number,
  build: string | undefined,
): Promise<void> {
  const { createSluice } = await importBuild(build);
  const { createWebhooks } = await importBuild(build, "./webhooks");
  const { hooks, close } = openProducer(redisUrl, {}, { createSluice, createWebhooks });
  for (let endpoint = 0; endpoint < ENDPOINTS; endpoint++) {
    const name = { tenant: `tenant-${endpoint}`, id: "a" };
    await hooks.endpoints.put({ ...name, url: `${url}/ok/${endpoint}` });
  }
  for (let from = 0; from < count; from += STORED_AT_ONCE) {
    const some = Array.from({ length: Math.min(STORED_AT_ONCE, count - from) }, (_, at) => {
      const tenant = `tenant-${(from + at) % ENDPOINTS}`;
      return hooks.send({ tenant, type: TYPE, data: DATA });
    });
    await Promise.all(some);
  }
  await close();
}

async function storeJobs(redisUrl: string, url: string, count: number): Promise<void> {
  const queue = new Queue<PlainWebhook>(PLAIN_QUEUE, { connection: connectionTo(redisUrl) });
  const body = JSON.stringify({ type: TYPE, timestamp: new Date(), data: DATA });
  for (let from = 0; from < count; from += STORED_AT_ONCE) {
    const some = Array.from({ length: Math.min(STORED_AT_ONCE, count - from) }, (_, at) => ({
      name: "job",
      data: { url: `${url}/ok/${(from + at) % ENDPOINTS}`, body },
    }));
    await queue.addBulk(some);
  }
  await queue.close();
}
