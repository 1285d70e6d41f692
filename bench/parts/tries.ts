import { fork } from "node:child_process";
import { fileURLToPath } from "node:url";
import type { Flags } from "../flags.ts";
import type { Bench } from "../fleet/run-load.ts";
import { formatBound, formatNumber, isWithin, PROMISED_OF_TRIES, type Bound } from "../promises.ts";
import type { Row, Table } from "../table.ts";
import type { Asked, TriesReport, TriesSetup } from "./tries-probe.ts";

const PROBE = fileURLToPath(new URL("./tries-probe.ts", import.meta.url));
const CALLERS = 500;
const START_UP_SECONDS = 0.5;
const MANY_KEYS = 10_000;

interface Case extends Pick<TriesSetup, "names" | "keys" | "max" | "windowSeconds"> {
  readonly title: string;
  readonly isRefusing: boolean;
}

const CASES: readonly Case[] = [
  {
    title: "one hot key, allowed",
    names: 1,
    keys: 1,
    max: 10_000_000,
    windowSeconds: 1,
    isRefusing: false,
  },
  {
    title: `${formatNumber(MANY_KEYS)} random keys, allowed`,
    names: 1,
    keys: MANY_KEYS,
    max: 1_000,
    windowSeconds: 1,
    isRefusing: false,
  },
  {
    title: "one hot key, mostly refused",
    names: 1,
    keys: 1,
    max: 100,
    windowSeconds: 1,
    isRefusing: true,
  },
  {
    title: `${formatNumber(MANY_KEYS)} random keys, mostly refused`,
    names: 1,
    keys: MANY_KEYS,
    max: 2,
    windowSeconds: 10,
    isRefusing: true,
  },
  {
    title: `three keys at once, each one of ${formatNumber(MANY_KEYS)}, allowed`,
    names: 3,
    keys: MANY_KEYS,
    max: 1_000,
    windowSeconds: 60,
    isRefusing: false,
  },
  {
    title: `three keys at once, each one of ${formatNumber(MANY_KEYS)}, mostly refused`,
    names: 3,
    keys: MANY_KEYS,
    max: 2,
    windowSeconds: 10,
    isRefusing: true,
  },
];

type Reports = Partial<Record<Asked, TriesReport>>;

/** Compares `tryDraw` with rate-limiter-flexible's `consume`, on fixed windows of the same length and size. */
export async function measureTries(bench: Bench, { effort, contenders }: Flags): Promise<Table[]> {
  const tables: Table[] = [];
  for (const each of CASES) {
    const { names, keys, max, windowSeconds } = each;
    const reports: Reports = {};
    for (const limiter of askedIn(each, contenders)) {
      await bench.redis.flushall();
      reports[limiter] = await probe({
        names,
        keys,
        max,
        windowSeconds,
        redisUrl: bench.redisUrl,
        limiter,
        callers: CALLERS,
        startUpSeconds: START_UP_SECONDS,
        seconds: effort.throughputSeconds,
      });
    }
    if (Object.keys(reports).length > 0) tables.push(tableOf(each, reports));
  }
  return tables;
}

/** Adds a peer that caches refusals, which shows the effect of that cache alone. */
function askedIn({ isRefusing }: Case, contenders: Flags["contenders"]): Asked[] {
  const asked: Asked[] = [];
  if (contenders.includes("sluice")) asked.push("sluice");
  if (!contenders.includes("rate-limiter-flexible")) return asked;
  asked.push("rate-limiter-flexible");
  if (isRefusing) asked.push("rate-limiter-flexible-remembering");
  return asked;
}

function tableOf({ title, max, windowSeconds, isRefusing }: Case, reports: Reports): Table {
  const rateOf = ({ calls, seconds }: TriesReport): number => calls / seconds;
  const cpuOf = ({ cost, calls }: TriesReport): number => cost.cpuUs / calls;
  return {
    title: `tryDraw and consume, ${CALLERS} at once in one process: ${title}, ${formatNumber(max)} calls in ${windowSeconds} s a key`,
    rows: [
      row(reports, "calls a second", rateOf, { digits: 0 }),
      ratioRow(reports, "calls a second, of its peer's", rateOf, PROMISED_OF_TRIES.rate),
      row(reports, "Redis CPU a call, µs", cpuOf),
      ratioRow(reports, "Redis CPU a call, of its peer's", cpuOf, PROMISED_OF_TRIES.cpu),
      row(reports, "script calls a call", ({ cost, calls }) => cost.scripts / calls, { digits: 4 }),
      row(reports, "share that was refused", ({ refused, calls }) => refused / calls),
      row(
        reports,
        "most allowed in one window, of the limit",
        ({ fullestWindow }) => fullestWindow,
        {
          bound: { atMost: 1 },
        },
      ),
      ...(isRefusing ? refusingRows(reports, rateOf, cpuOf) : []),
    ],
  };
}

type Figure = (report: TriesReport) => number;

function refusingRows(reports: Reports, rateOf: Figure, cpuOf: Figure): Row[] {
  const remembering = reports["rate-limiter-flexible-remembering"];
  const rows = [row(reports, "allowed, of what the limit allows", ({ used }) => used)];
  if (remembering === undefined) return rows;
  const peer = { "rate-limiter-flexible": remembering };
  return [
    ...rows,
    row(peer, "calls a second, with inMemoryBlockOnConsumed", rateOf, { digits: 0 }),
    row(peer, "Redis CPU a call with it, µs", cpuOf),
  ];
}

function row(
  { sluice, "rate-limiter-flexible": peer }: Reports,
  figure: string,
  valueOf: Figure,
  { bound, digits = 2 }: { readonly bound?: Bound; readonly digits?: number } = {},
): Row {
  return {
    figure,
    promise: bound && formatBound(bound),
    isKept: bound && sluice && isWithin(bound, valueOf(sluice)),
    values: {
      ...(sluice && { sluice: formatNumber(valueOf(sluice), digits) }),
      ...(peer && { "rate-limiter-flexible": formatNumber(valueOf(peer), digits) }),
    },
  };
}

/** Creates a row with Sluice's figure ÷ the peer's. */
function ratioRow(reports: Reports, figure: string, valueOf: Figure, bound: Bound): Row {
  const { "rate-limiter-flexible": peer } = reports;
  const ofPeer = (report: TriesReport): number => (peer ? valueOf(report) / valueOf(peer) : NaN);
  return row(reports, figure, ofPeer, peer && { bound, digits: 2 });
}

/** Runs one process that tries calls. */
export async function probe(setup: TriesSetup): Promise<TriesReport> {
  const child = fork(PROBE, [JSON.stringify(setup)]);
  return new Promise((resolve, reject) => {
    child.once("message", (report) => {
      child.disconnect();
      resolve(report as TriesReport);
    });
    child.once("exit", () => reject(new Error("a probe of tries ended without a report")));
  });
}
