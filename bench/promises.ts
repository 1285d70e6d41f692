import type { Outcome } from "./fleet/run-load.ts";
import { formatBound, formatNumber, isWithin, type Bound } from "../src/cli/conform/figure.ts";
import type { Row } from "./table.ts";

export { formatBound, formatNumber, isWithin, type Bound };

export interface PromisedFigure {
  readonly figure: string;
  readonly digits: number;
  readonly valueOf: (outcome: Outcome) => number;
  /** Returns undefined if nothing is promised for this cap and number of replicas. */
  readonly boundAt: (cap: number, replicas: number) => Bound | undefined;
}

/** Redis time is promised for this many replicas. With more of them, each script call serves fewer calls. */
const COST_REPLICAS = 4;
/**
 * The promised CPU time of Redis per call, by cap. It falls as the cap grows, because one script call then serves
 * more calls.
 */
const MOST_CPU_US: ReadonlyMap<number, number> = new Map([
  [1_000, 12],
  [5_000, 3],
  [100_000, 0.5],
]);

/** The rows of one cap's table, in order. */
export const PROMISED: readonly PromisedFigure[] = [
  {
    figure: "share of the cap that is used",
    digits: 3,
    valueOf: ({ share }) => share,
    boundAt: () => ({ atLeast: 0.995 }),
  },
  {
    figure: "calls in the worst second, of the cap",
    digits: 4,
    valueOf: ({ worstSecond }) => worstSecond,
    boundAt: () => ({ atMost: 1.01 }),
  },
  {
    figure: "calls in the worst 100 ms, of a tenth of the cap",
    digits: 3,
    valueOf: ({ worstTenth }) => worstTenth,
    boundAt: (cap) => (cap >= 1_000 ? { atMost: 1.1 } : undefined),
  },
  {
    figure: "fairness between replicas (Jain's index)",
    digits: 3,
    valueOf: ({ fairness }) => fairness,
    boundAt: () => ({ atLeast: 0.98 }),
  },
  {
    figure: "Redis CPU a call, µs",
    digits: 2,
    valueOf: ({ cost, calls }) => cost.cpuUs / calls,
    boundAt: (cap, replicas) =>
      replicas === COST_REPLICAS ? atMost(MOST_CPU_US.get(cap)) : undefined,
  },
  {
    figure: "of that in scripts, µs",
    digits: 2,
    valueOf: ({ cost, calls }) => cost.scriptUs / calls,
    boundAt: () => undefined,
  },
  {
    figure: "script calls a call",
    digits: 4,
    valueOf: ({ cost, calls }) => cost.scripts / calls,
    boundAt: () => undefined,
  },
  {
    figure: "one script call, 99th percentile, µs",
    digits: 0,
    valueOf: ({ cost }) => cost.scriptP99Us,
    boundAt: (_cap, replicas) => (replicas === COST_REPLICAS ? { atMost: 100 } : undefined),
  },
];

/** The promises for one bucket with several limits. */
export const PROMISED_OF_LIMITS = {
  /** The used share of the limit that restricts the calls. */
  share: { atLeast: 0.99 },
  /** The units above the most that any window allows. */
  over: { atMost: 0 },
  /**
   * The calls in the worst second ÷ the most that a second allows, as a downstream sees it. Calls may be some ms
   * late.
   */
  worstSecond: { atMost: 1.01 },
  scriptP99Us: { atMost: 100 },
} as const satisfies Readonly<Record<string, Bound>>;

/** The promises for keys with levels. */
export const PROMISED_OF_LEVELS = {
  share: { atLeast: 0.99 },
  over: { atMost: 0 },
  /** The Redis cost of two levels of limits ÷ that of one level. */
  cpu: { atMost: 1.5 },
} as const satisfies Readonly<Record<string, Bound>>;

/** The promises for `tryDraw`, relative to rate-limiter-flexible's `consume`. */
export const PROMISED_OF_TRIES = {
  rate: { atLeast: 3 },
  cpu: { atMost: 1 / 3 },
} as const satisfies Readonly<Record<string, Bound>>;

/** The promises for the presets of LLM APIs. */
export const PROMISED_OF_LLM = {
  share: { atLeast: 0.95 },
  refusals: { atMost: 0 },
  /** The error of the estimates after a hundred answers. */
  error: { atMost: 0.1 },
} as const satisfies Readonly<Record<string, Bound>>;

/** The promises for concurrency that adapts to latency. */
export const PROMISED_OF_ADAPTIVE = {
  /** The mean number of calls at the downstream ÷ the number that it runs at once, which is the best fixed limit. */
  present: { atMost: 1.1 },
  /** The share of the downstream's capacity that is used. */
  used: { atLeast: 0.9 },
} as const satisfies Readonly<Record<string, Bound>>;

/** Creates a row with a value for Sluice only. Without a bound, the row promises nothing. */
export function rowOf(
  figure: string,
  value: number,
  { bound, digits = 3 }: { readonly bound?: Bound; readonly digits?: number } = {},
): Row {
  const promise = bound && { promise: formatBound(bound), isKept: isWithin(bound, value) };
  return { figure, ...promise, values: { sluice: formatNumber(value, digits) } };
}

function atMost(value: number | undefined): Bound | undefined {
  return value === undefined ? undefined : { atMost: value };
}
