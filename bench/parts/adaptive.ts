/** Measures concurrency that adapts to latency: one limit for all replicas, beside a limit in each process. */
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { Flags } from "../flags.ts";
import { createMachineClock } from "../fleet/machine-clock.ts";
import { runRaw, type Bench } from "../fleet/run-load.ts";
import {
  formatBound,
  formatNumber,
  isWithin,
  PROMISED_OF_ADAPTIVE as PROMISED,
  type Bound,
} from "../promises.ts";
import type { Row, Table } from "../table.ts";

const REPLICAS = [1, 4, 16] as const;
const CALLERS = 240;
/** The downstream works on this many calls at once. More calls wait in its queue. */
const CAPACITY = 40;
const [LEAST_MS, MOST_MS] = [80, 120];
const MEAN_MS = (LEAST_MS + MOST_MS) / 2;
/** The time that an adaptive limit has to find the capacity. */
const START_UP_S = 10;
const SAMPLE_MS = 20;
const LIMITERS = { sluice: "sluice-adaptive", gradient2: "gradient2" } as const;

/** A figure of each limiter. */
type Measured = Partial<Record<keyof typeof LIMITERS, number>>;

interface Downstream extends AsyncDisposable {
  readonly url: string;
  /** The mean number of calls at the downstream, running or in its queue, and the calls that it ended in a second. */
  between(fromMs: number, toMs: number): { readonly present: number; readonly perSecond: number };
}

export async function measureAdaptive(
  bench: Bench,
  { contenders, effort }: Flags,
): Promise<Table[]> {
  if (!contenders.includes("sluice")) return [];
  const rows: Row[] = [];
  for (const replicas of REPLICAS) rows.push(...(await rowsOf(bench, replicas, effort.seconds)));
  const title = `Adaptive concurrency after ${START_UP_S} s, at a downstream that runs ${CAPACITY} calls at once`;
  return [{ title, rows }];
}

async function rowsOf(bench: Bench, replicas: number, seconds: number): Promise<Row[]> {
  const present: Measured = {};
  const used: Measured = {};
  for (const column of ["sluice", "gradient2"] as const) {
    await using downstream = await startDownstream();
    const { fromMs, toMs } = await runRaw(bench, {
      contender: LIMITERS[column],
      cap: CAPACITY,
      replicas,
      callers: Math.ceil(CALLERS / replicas),
      seconds,
      startUpSeconds: START_UP_S,
      url: downstream.url,
    });
    const seen = downstream.between(fromMs, toMs);
    present[column] = seen.present / CAPACITY;
    used[column] = (seen.perSecond * MEAN_MS) / 1_000 / CAPACITY;
  }
  const of = `${replicas} ${replicas === 1 ? "replica" : "replicas"}`;
  return [
    compare(`${of}: calls at the downstream, of its capacity`, PROMISED.present, present),
    compare(`${of}: share of the capacity that is used`, PROMISED.used, used),
  ];
}

function compare(figure: string, bound: Bound, measured: Measured): Row {
  const texts = Object.entries(measured).map(([column, value]) => [column, formatNumber(value, 3)]);
  return {
    figure,
    promise: formatBound(bound),
    isKept: isWithin(bound, measured.sluice!),
    values: Object.fromEntries(texts) as Row["values"],
  };
}

async function startDownstream(): Promise<Downstream> {
  const nowMs = createMachineClock();
  const queue: (() => void)[] = [];
  const ends: number[] = [];
  const samples: { readonly atMs: number; readonly present: number }[] = [];
  let running = 0;

  async function work(): Promise<void> {
    if (running < CAPACITY) running += 1;
    else await new Promise<void>((resolve) => void queue.push(resolve));
    const workMs = LEAST_MS + Math.random() * (MOST_MS - LEAST_MS);
    await new Promise((resolve) => void setTimeout(resolve, workMs));
    const next = queue.shift();
    if (next === undefined) running -= 1;
    else next();
    ends.push(nowMs());
  }

  const server = createServer((request, response) => {
    request.resume();
    void work().then(() => response.end());
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const sampling = setInterval(() => {
    samples.push({ atMs: nowMs(), present: running + queue.length });
  }, SAMPLE_MS);
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`,
    between(fromMs, toMs) {
      const isMeasured = (atMs: number): boolean => atMs >= fromMs && atMs < toMs;
      const counted = samples.filter(({ atMs }) => isMeasured(atMs));
      const sum = counted.reduce((total, each) => total + each.present, 0);
      const perSecond = (ends.filter(isMeasured).length * 1_000) / (toMs - fromMs);
      return { present: sum / counted.length, perSecond };
    },
    async [Symbol.asyncDispose]() {
      clearInterval(sampling);
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
}
