import { parseWindow, type RateInput } from "../../core/limits/rate.ts";
import { normal, type Random } from "./random.ts";

/** The API that the calls go to, as the simulation models it. */
export interface DownstreamOptions {
  /** How many calls the API accepts: `"100/s"`. It refuses others with a 429. Defaults to accepting all calls. */
  readonly limit?: RateInput | undefined;
  /**
   * How the API counts. `"fixed"`: windows that begin at multiples of their length. `"sliding"`: the window that ends
   * now. `"bucket"`: a token bucket that starts full. Defaults to `"fixed"`.
   */
  readonly window?: "fixed" | "sliding" | "bucket" | undefined;
  /** How long each call runs, in ms, or the median and the 99th percentile of it. Defaults to 50. */
  readonly latencyMs?: number | { readonly p50: number; readonly p99: number } | undefined;
  /** Whether a 429 names the time at which the API accepts calls again. Defaults to true. */
  readonly retryAfter?: boolean | undefined;
  /** Other limits that hold from a time on, in the order of time. */
  readonly changes?: readonly { readonly atMs: number; readonly limit: RateInput }[] | undefined;
}

/** An API with a limit and a latency. */
export interface Downstream {
  /** Counts a call. Returns 0 if the API accepts it, otherwise the ms after which it may accept calls again. */
  arrive(atMs: number): number;
  latencyMs(): number;
}

/** The 99th percentile of the standard normal distribution. */
const AT_P99 = 2.326;

export function createDownstream(given: DownstreamOptions, random: Random): Downstream {
  const { limit, window = "fixed", latencyMs = 50, changes = [] } = given;
  const makeWindow = WINDOWS[window];
  let next = 0;
  let accepts =
    limit === undefined ? acceptAll : makeWindow(...numbersOf("downstream.limit", limit));
  return {
    arrive(atMs) {
      while (next < changes.length && changes[next]!.atMs <= atMs) {
        accepts = makeWindow(
          ...numbersOf(`downstream.changes[${next}].limit`, changes[next]!.limit),
        );
        next += 1;
      }
      return accepts(atMs);
    },
    latencyMs() {
      if (typeof latencyMs === "number") return latencyMs;
      const spread = Math.log(latencyMs.p99 / latencyMs.p50) / AT_P99;
      return latencyMs.p50 * Math.exp(spread * normal(random));
    },
  };
}

function numbersOf(option: string, limit: RateInput): [count: number, periodMs: number] {
  const { count, periodUs } = parseWindow("simulate()", limit, option);
  return [count, periodUs / 1_000];
}

/** Counts a call. Returns 0 if it is accepted, otherwise the ms until calls are accepted again. */
type Accepts = (atMs: number) => number;

const acceptAll: Accepts = () => 0;

const WINDOWS = {
  fixed(count: number, periodMs: number): Accepts {
    let startMs = 0;
    let used = 0;
    return (atMs) => {
      const ownStartMs = Math.floor(atMs / periodMs) * periodMs;
      if (ownStartMs !== startMs) used = 0;
      startMs = ownStartMs;
      if (used >= count) return startMs + periodMs - atMs;
      used += 1;
      return 0;
    };
  },
  sliding(count: number, periodMs: number): Accepts {
    /** The times of the latest accepted calls. `oldest` is the index of the first of them. */
    const times = new Float64Array(count).fill(-Infinity);
    let oldest = 0;
    return (atMs) => {
      const freeAtMs = times[oldest]! + periodMs;
      if (freeAtMs > atMs) return freeAtMs - atMs;
      times[oldest] = atMs;
      oldest = (oldest + 1) % count;
      return 0;
    };
  },
  bucket(count: number, periodMs: number): Accepts {
    let tokens = count;
    let lastMs = 0;
    return (atMs) => {
      tokens = Math.min(count, tokens + ((atMs - lastMs) * count) / periodMs);
      lastMs = atMs;
      if (tokens < 1) return ((1 - tokens) * periodMs) / count;
      tokens -= 1;
      return 0;
    };
  },
} satisfies Record<string, (count: number, periodMs: number) => Accepts>;
