/**
 * Runs the same calls through Sluice and through four models. The models are deliberately small: each does what its
 * name says and nothing else. They know the rate only, and they ignore 429s.
 */
import type { Settings } from "./settings.ts";

/** A call that arrives. The lists of calls are in the order of their times. */
export interface Call {
  readonly atMs: number;
  /** The number of the tenant, from 0. */
  readonly tenant: number;
  /** The number of the process, from 0. */
  readonly replica: number;
}

/** A call that was sent to the API. */
export interface Departure {
  readonly atMs: number;
  readonly arrivedMs: number;
  readonly tenant: number;
  /** Whether the API answered with a 429. */
  readonly isRefused: boolean;
}

export interface Run {
  readonly name: string;
  readonly about: string;
  /** In the order of their times. */
  readonly departures: readonly Departure[];
  readonly waiting: number;
}

/** The parts of `sluice/simulate` that the page uses. */
export type Simulate = (options: {
  readonly policy: object;
  readonly arrivals: readonly object[];
  readonly replicas: number;
  readonly downstream: object;
  readonly untilMs: number;
  readonly onCall: (call: SimulatedCall) => void;
}) => { readonly waiting: number };

interface SimulatedCall {
  readonly arrivedMs: number;
  readonly startedMs: number;
  readonly key: unknown;
  readonly status: number;
}

/** Calls arrive for this long. */
const ARRIVING_MS = 10_000;
/** The end of the time line. */
export const END_MS = 12_000;
/** How long a call runs. */
export const LATENCY_MS = 100;
const SECOND_MS = 1_000;
const DIP = { fromMs: 4_000, toMs: 7_000 };
const NAME_OF_TENANT = "tenant-";

/** The options of the bucket. */
export function policyOf(settings: Settings): object {
  const { rate, burst, perTenant, concurrency } = settings;
  return {
    rate: `${rate}/s`,
    ...(burst > 1 ? { burst } : {}),
    ...(concurrency > 0 ? { concurrency } : {}),
    ...(perTenant > 0 ? { perKey: { rate: `${perTenant}/s` } } : {}),
  };
}

/** Draws the calls from the seed: groups of calls arrive independently of each other. */
export function drawCalls(settings: Settings): readonly Call[] {
  const { traffic, together, tenants, loud, replicas, seed } = settings;
  const random = createRandom(seed);
  const calls: Call[] = [];
  for (;;) {
    const last = calls.at(-1)?.atMs ?? 0;
    const atMs = last - (Math.log(1 - random()) * together * SECOND_MS) / traffic;
    if (atMs >= ARRIVING_MS) return calls;
    for (let index = 0; index < together; index++) {
      const isLoud = tenants === 1 || random() * 100 < loud;
      const tenant = isLoud ? 0 : 1 + Math.floor(random() * (tenants - 1));
      calls.push({ atMs, tenant, replica: Math.floor(random() * replicas) });
    }
  }
}

/** Mulberry32. */
function createRandom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

export function runAll(settings: Settings, simulate: Simulate): readonly Run[] {
  const calls = drawCalls(settings);
  const model = (name: string, about: string, leave: (call: Call) => number): Run => {
    return { name, about, ...sendToApi(settings, calls, leave) };
  };
  return [
    runSluice(settings, calls, simulate),
    model(
      "Fixed window",
      "A counter of each second, shared by all processes",
      fixedWindow(settings),
    ),
    model(
      "Bottleneck: minTime",
      "Without Redis: each process spaces its own calls",
      minTimePerProcess(settings),
    ),
    model(
      "Bottleneck: reservoir",
      "Without Redis: each process fills a reservoir every second",
      reservoirPerProcess(settings),
    ),
    model(
      "Token bucket",
      "One bucket for all processes, which starts full and holds one second of calls",
      tokenBucket(settings),
    ),
  ];
}

function runSluice(settings: Settings, calls: readonly Call[], simulate: Simulate): Run {
  const { api, dip, replicas, tenants } = settings;
  const departures: Departure[] = [];
  const { waiting } = simulate({
    policy: policyOf(settings),
    arrivals: calls.map(({ atMs, tenant, replica }) => ({
      atMs,
      replica,
      ...(tenants > 1 ? { key: `${NAME_OF_TENANT}${tenant}` } : {}),
    })),
    replicas,
    downstream: {
      latencyMs: LATENCY_MS,
      ...(api > 0 ? { limit: `${api}/s`, window: "sliding" } : {}),
      ...(api > 0 && dip === 1
        ? {
            changes: [
              { atMs: DIP.fromMs, limit: `${halfOf(api)}/s` },
              { atMs: DIP.toMs, limit: `${api}/s` },
            ],
          }
        : {}),
    },
    untilMs: END_MS,
    onCall: ({ arrivedMs, startedMs, key, status }) => {
      const tenant = typeof key === "string" ? Number(key.slice(NAME_OF_TENANT.length)) : 0;
      departures.push({ atMs: startedMs, arrivedMs, tenant, isRefused: status === 429 });
    },
  });
  const about = "The code of this version: one bucket for all processes";
  return { name: "Sluice", about, departures, waiting };
}

/** Lets as many calls through as the rate in each second of the clock. Others wait for the next second. */
export function fixedWindow({ rate }: Settings): (call: Call) => number {
  let second = 0;
  let used = 0;
  return ({ atMs }) => {
    const arrivedIn = Math.floor(atMs / SECOND_MS);
    if (arrivedIn > second) [second, used] = [arrivedIn, 0];
    if (used === rate) [second, used] = [second + 1, 0];
    used += 1;
    return Math.max(atMs, second * SECOND_MS);
  };
}

/** Spaces the calls of each process by one interval of the whole rate. No process knows of the others. */
export function minTimePerProcess({ rate, replicas }: Settings): (call: Call) => number {
  const nextMs = Array.from({ length: replicas }, () => 0);
  return ({ atMs, replica }) => {
    const leavesMs = Math.max(atMs, nextMs[replica]!);
    nextMs[replica] = leavesMs + SECOND_MS / rate;
    return leavesMs;
  };
}

/**
 * Gives each process a reservoir of as many calls as the rate, and fills it every second. No process knows of the
 * others, which began at other times.
 */
export function reservoirPerProcess({ rate, replicas }: Settings): (call: Call) => number {
  const reservoirs = Array.from({ length: replicas }, (_, index) => ({
    left: rate,
    fillsAtMs: ((index + 1) * SECOND_MS) / replicas,
    lastMs: 0,
  }));
  return ({ atMs, replica }) => {
    const own = reservoirs[replica]!;
    own.lastMs = Math.max(own.lastMs, atMs);
    while (own.left === 0 || own.fillsAtMs <= own.lastMs) {
      own.lastMs = Math.max(own.lastMs, own.fillsAtMs);
      own.fillsAtMs += SECOND_MS;
      own.left = rate;
    }
    own.left -= 1;
    return own.lastMs;
  };
}

/** Takes one token for each call, in the order of arrival. */
export function tokenBucket({ rate }: Settings): (call: Call) => number {
  let tokens = rate;
  let lastMs = 0;
  return ({ atMs }) => {
    const startMs = Math.max(atMs, lastMs);
    tokens = Math.min(rate, tokens + ((startMs - lastMs) * rate) / SECOND_MS);
    const missing = Math.max(0, 1 - tokens);
    lastMs = startMs + (missing * SECOND_MS) / rate;
    tokens += missing - 1;
    return lastMs;
  };
}

function sendToApi(
  settings: Settings,
  calls: readonly Call[],
  leave: (call: Call) => number,
): Pick<Run, "departures" | "waiting"> {
  const accepts = openApi(settings);
  const sent = calls
    .map((call) => ({ atMs: leave(call), arrivedMs: call.atMs, tenant: call.tenant }))
    .filter(({ atMs }) => atMs <= END_MS)
    .sort((a, b) => a.atMs - b.atMs);
  return {
    departures: sent.map((each) => ({ ...each, isRefused: !accepts(each.atMs) })),
    waiting: calls.length - sent.length,
  };
}

/** An API that accepts a number of calls in any second, as the simulated one does. A change of the number resets it. */
function openApi({ api, dip }: Settings): (atMs: number) => boolean {
  let accepted: number[] = [];
  let wasHalf = false;
  return (atMs) => {
    if (api === 0) return true;
    const isHalf = dip === 1 && atMs >= DIP.fromMs && atMs < DIP.toMs;
    if (isHalf !== wasHalf) accepted = [];
    wasHalf = isHalf;
    accepted = accepted.filter((each) => each + SECOND_MS > atMs);
    if (accepted.length >= (isHalf ? halfOf(api) : api)) return false;
    accepted.push(atMs);
    return true;
  };
}

function halfOf(count: number): number {
  return Math.max(1, Math.floor(count / 2));
}

export interface Figures {
  readonly left: number;
  readonly waiting: number;
  readonly refused: number;
  /** The most calls that started within any second. */
  readonly worstSecond: number;
  /** The wait that half of the calls did not exceed, and the one that 99 % did not exceed, in ms. */
  readonly medianMs: number;
  readonly p99Ms: number;
  /** The median wait of all tenants but the first. Undefined if there are none. */
  readonly quietMs: number | undefined;
}

export function figuresOf({ departures, waiting }: Run): Figures {
  const waits = waitsOf(departures);
  const quiet = waitsOf(departures.filter(({ tenant }) => tenant > 0));
  let worstSecond = 0;
  let from = 0;
  for (const [index, { atMs }] of departures.entries()) {
    while (departures[from]!.atMs <= atMs - SECOND_MS) from += 1;
    worstSecond = Math.max(worstSecond, index - from + 1);
  }
  return {
    left: departures.length,
    waiting,
    refused: departures.filter(({ isRefused }) => isRefused).length,
    worstSecond,
    medianMs: quantile(waits, 0.5),
    p99Ms: quantile(waits, 0.99),
    quietMs: quiet.length === 0 ? undefined : quantile(quiet, 0.5),
  };
}

function waitsOf(departures: readonly Departure[]): readonly number[] {
  return departures.map(({ atMs, arrivedMs }) => atMs - arrivedMs).sort((a, b) => a - b);
}

function quantile(sorted: readonly number[], part: number): number {
  return sorted[Math.max(0, Math.ceil(sorted.length * part) - 1)] ?? 0;
}
