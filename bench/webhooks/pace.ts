import { setTimeout as pause } from "node:timers/promises";
import type { Webhooks } from "sluice/webhooks";
import { worstWindow } from "sluice/testing";
import type { Flags } from "../flags.ts";
import type { Bench } from "../fleet/run-load.ts";
import { formatNumber, rowOf } from "../promises.ts";
import type { Table } from "../table.ts";
import type { Arrival } from "./messages.ts";
import { LOCAL, openProducer, startReceiver, startSender, warmUp } from "./stage.ts";

const RATES = [50, 100];
const SENDERS = 2;
const RETRY_MS = 500;
const SCHEDULE_MS = [0, ...Array.from({ length: 9 }, () => RETRY_MS)];
/** The calls per message: the receiver answers 500 to every third call, and each message is replayed once. */
const CALLS_A_MESSAGE = 3;
const STORED_AT_ONCE = 50;
const LOOK_EVERY_MS = 100;

/**
 * Measures the worst second of endpoints with separate rates. One call in three is retried, and all messages are
 * replayed.
 */
export async function measurePace({ redis, redisUrl }: Bench, { effort }: Flags): Promise<Table> {
  await redis.flushall();
  const receiver = await startReceiver();
  // The concurrency is high enough that only the rate delays calls.
  const perEndpoint = { concurrency: 100 };
  const breaker = { failures: 1_000 };
  const options = { ...LOCAL, scheduleMs: SCHEDULE_MS, perEndpoint, breaker };
  const producer = openProducer(redisUrl, options);
  const { hooks, close } = producer;
  for (const rate of RATES) {
    const name = { tenant: `at-${rate}`, id: "a" };
    await hooks.endpoints.put({ ...name, url: `${receiver.url}/shaky/${rate}`, rate: `${rate}/s` });
  }
  const sinceMs = Date.now();
  const setup = { kind: "sluice", redisUrl, concurrency: 100, options } as const;
  const senders = Array.from({ length: SENDERS }, () => startSender(setup));
  await warmUp(producer, receiver, senders);
  void receiver.expect(Infinity);
  for (const rate of RATES) {
    const tenant = `at-${rate}`;
    const count = Math.ceil((rate * (effort.seconds + 1)) / CALLS_A_MESSAGE);
    for (let from = 0; from < count; from += STORED_AT_ONCE) {
      const length = Math.min(STORED_AT_ONCE, count - from);
      await Promise.all(
        Array.from({ length }, (_, at) => hooks.send({ tenant, type: "a.b", data: from + at })),
      );
    }
    await hooks.replay({ tenant, since: sinceMs, by: "bench" });
  }
  await untilIdle(hooks);
  const { arrivals } = await receiver.report();
  const kinds = await purposesOf(RATES.map((rate) => hooks.attempts.list(logOf(rate))));
  await Promise.all(senders.map((sender) => sender.kill()));
  await close();
  await receiver.end();
  return {
    title: `Endpoints with separate rates, ${SENDERS} senders, 500 to every third call, and a replay of all`,
    rows: [
      ...RATES.map((rate) =>
        rowOf(
          `${rate}/s: calls in the worst second, of the rate`,
          worstSecondOf(arrivals, rate) / rate,
          // Rounds the bound up to whole calls.
          { bound: { atMost: Math.ceil((rate * 101) / 100) / rate }, digits: 4 },
        ),
      ),
      { figure: "calls", values: { sluice: formatNumber(arrivals.length, 0) } },
      {
        figure: "of the last 1,000 at each, retries",
        values: { sluice: formatNumber(kinds.retries, 0) },
      },
      {
        figure: "of the last 1,000 at each, replays",
        values: { sluice: formatNumber(kinds.replays, 0) },
      },
    ],
  };
}

function logOf(rate: number): { tenant: string; endpoint: string; limit: number } {
  return { tenant: `at-${rate}`, endpoint: "a", limit: 1_000 };
}

async function purposesOf(
  pages: readonly Promise<{ readonly entries: readonly { attempt: number; purpose: string }[] }>[],
): Promise<{ readonly retries: number; readonly replays: number }> {
  const entries = (await Promise.all(pages)).flatMap((page) => page.entries);
  return {
    retries: entries.filter(({ attempt }) => attempt > 1).length,
    replays: entries.filter(({ purpose }) => purpose === "replay").length,
  };
}

async function untilIdle(hooks: Webhooks): Promise<void> {
  for (;;) {
    const { waiting, active, delayed } = await hooks.queue.counts();
    if (waiting + active + delayed === 0) return;
    await pause(LOOK_EVERY_MS);
  }
}

function worstSecondOf(arrivals: readonly Arrival[], rate: number): number {
  const times = arrivals.filter(({ path }) => path === `/shaky/${rate}`).map(({ atMs }) => atMs);
  return worstWindow(
    times.toSorted((a, b) => a - b),
    1_000,
  );
}
