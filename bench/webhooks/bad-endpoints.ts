import { setTimeout as pause } from "node:timers/promises";
import { createMachineClock } from "../fleet/machine-clock.ts";
import { median } from "../fleet/measure.ts";
import type { Flags } from "../flags.ts";
import type { Bench } from "../fleet/run-load.ts";
import { formatNumber, rowOf } from "../promises.ts";
import type { Row, Table } from "../table.ts";
import { LOCAL, openProducer, startReceiver, startSender, warmUp, type Receiver } from "./stage.ts";

const ENDPOINTS = 500;
const DEAD = 20;
const SLOW = 20;
/** The webhooks a second to all endpoints together, sent one after the other. */
const RATE = 100;
const TICK_MS = 10;
/** No server listens at this URL. */
const DEAD_URL = "http://127.0.0.1:9";

interface Latency {
  readonly p50Ms: number;
  readonly p99Ms: number;
}

/**
 * Measures the time from `send` to the arrival for webhooks of good endpoints, with and without bad ones,
 * alternately.
 */
export async function measureBadEndpoints(bench: Bench, { effort }: Flags): Promise<Table> {
  const receiver = await startReceiver();
  const withBad: Latency[] = [];
  const without: Latency[] = [];
  for (let round = 0; round < effort.rounds; round++) {
    without.push(await run(bench, receiver, { seconds: effort.seconds, hasBad: false }));
    withBad.push(await run(bench, receiver, { seconds: effort.seconds, hasBad: true }));
  }
  await receiver.end();
  const of = (latencies: readonly Latency[], what: keyof Latency): number =>
    median(latencies.map((each) => each[what]));
  const row = (figure: string, latencies: readonly Latency[], what: keyof Latency): Row => ({
    figure,
    values: { sluice: formatNumber(of(latencies, what), 1) },
  });
  // Compares the turns in pairs, because load from other processes changes within seconds.
  const ratio = median(withBad.map(({ p99Ms }, turn) => p99Ms / without[turn]!.p99Ms));
  return {
    title: `${ENDPOINTS} endpoints, of which ${DEAD} are dead and ${SLOW} never answer, ${RATE} webhooks a second`,
    rows: [
      row("without bad ones: from send to arrival, median, ms", without, "p50Ms"),
      row("without bad ones: 99th percentile, ms", without, "p99Ms"),
      row("beside bad ones: median, ms", withBad, "p50Ms"),
      row("beside bad ones: 99th percentile, ms", withBad, "p99Ms"),
      rowOf("99th percentile, of that without bad ones, median of the turns", ratio, {
        bound: { atMost: 1.1 },
        digits: 2,
      }),
    ],
  };
}

async function run(
  { redis, redisUrl }: Bench,
  receiver: Receiver,
  { seconds, hasBad }: { readonly seconds: number; readonly hasBad: boolean },
): Promise<Latency> {
  await redis.flushall();
  const producer = openProducer(redisUrl);
  const { hooks, close } = producer;
  const isBad = (endpoint: number): boolean => hasBad && endpoint % (ENDPOINTS / (DEAD + SLOW)) < 1;
  const urlOf = (endpoint: number): string => {
    if (!isBad(endpoint)) return `${receiver.url}/ok/${endpoint}`;
    return endpoint % 2 === 0 ? DEAD_URL : `${receiver.url}/slow/${endpoint}`;
  };
  for (let endpoint = 0; endpoint < ENDPOINTS; endpoint++) {
    await hooks.endpoints.put({ tenant: `t-${endpoint}`, id: "a", url: urlOf(endpoint) });
  }
  const setup = { kind: "sluice", redisUrl, concurrency: 250, options: LOCAL } as const;
  const sender = startSender(setup);
  await warmUp(producer, receiver, [sender]);
  void receiver.expect(Infinity);
  const nowMs = createMachineClock();
  const sending: Promise<unknown>[] = [];
  const beganMs = nowMs();
  // Skips the first two seconds, in which the bad endpoints are detected.
  const countedMs = beganMs + 2_000;
  for (let sent = 0; nowMs() < countedMs + seconds * 1_000;) {
    for (const due = ((nowMs() - beganMs) * RATE) / 1_000; sent < due; sent++) {
      const tenant = `t-${sent % ENDPOINTS}`;
      sending.push(hooks.send({ tenant, type: "a.b", data: { sentMs: nowMs() } }));
    }
    await pause(TICK_MS);
  }
  await Promise.all(sending);
  await pause(1_000);
  const { arrivals } = await receiver.report();
  await sender.kill();
  await close();
  const latencies = arrivals
    .filter(({ path, sentMs = 0 }) => path.startsWith("/ok") && sentMs >= countedMs)
    .map(({ atMs, sentMs }) => atMs - sentMs!)
    .toSorted((a, b) => a - b);
  const at = (share: number): number => latencies[Math.floor(latencies.length * share)] ?? NaN;
  return { p50Ms: at(0.5), p99Ms: at(0.99) };
}
