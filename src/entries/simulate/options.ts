import * as z from "zod";
import {
  KEY,
  PRIORITY,
  readOptions,
  wholeNumber,
  type Priority,
} from "../../core/input/options.ts";
import type { Key } from "../../core/key-path.ts";
import type { PolicyOptions } from "../../core/policy/policy.ts";
import { checkCost, type Cost } from "../../throttle/costs.ts";
import { InvalidOptionError } from "../../core/errors.ts";
import type { Arrivals, GeneratedArrivals } from "./arrivals.ts";
import { arrivalsOfHistory, type SimulatedHistory } from "./history.ts";
import type { DownstreamOptions } from "./downstream.ts";

/** What to simulate. */
export interface SimulateOptions {
  /** The options of the bucket: what `sluice.bucket(name, policy)` takes as limits. */
  readonly policy: PolicyOptions;
  /** The calls: arrivals in the order of time, or descriptions of arrivals. Give this or `history`. */
  readonly arrivals?: Arrivals | undefined;
  /**
   * What `bucket.history()` returned. The simulation draws the arrivals of each step at random from its counts. A history
   * knows no keys, costs or priorities.
   */
  readonly history?: SimulatedHistory | undefined;
  /** The number of processes that share the bucket. Defaults to 1. */
  readonly replicas?: number | undefined;
  /** The API that the calls go to. Defaults to one that accepts all calls and answers after 50 ms. */
  readonly downstream?: DownstreamOptions | undefined;
  /** The simulation draws all random numbers from this seed. Defaults to 1. */
  readonly seed?: number | undefined;
  /** How long a request to Redis takes, with its reply, in ms. Defaults to 1. */
  readonly roundTripMs?: number | undefined;
  /** The simulation ends at this time, in ms, even if calls wait. Defaults to the start of the last call. */
  readonly untilMs?: number | undefined;
  /** Called for each call when it starts or is refused, in the order of time. The next call reuses the object. */
  readonly onCall?: ((call: SimulatedOutcome) => void) | undefined;
}

/** What became of one call. Times are in ms from the start of the simulation. */
export interface SimulatedOutcome {
  readonly arrivedMs: number;
  /** When the call started, or was refused by its bucket. */
  readonly startedMs: number;
  readonly key: Key | undefined;
  readonly priority: Priority;
  /** The number of the replica, from 0. */
  readonly replica: number;
  /** What delayed the call: a limit such as `"100/s"`, `"cooldown"`, `"reduced rate"` after a cooldown, or undefined if nothing did. */
  readonly binding: string | undefined;
  /** 200 if the API accepts the call, 429 if it refuses the call. 402 if a budget of the bucket is spent. */
  readonly status: number;
}

const WHERE = "simulate()";
const YEAR_MS = 366 * 86_400_000;

function numberFrom(least: number, most: number, what: string): z.ZodType<number> {
  const error = `give ${what} from ${least} to ${most}`;
  return z.number({ error }).min(least, { error }).max(most, { error });
}

const TIME = numberFrom(0, YEAR_MS, "a time in ms");
const LATENCY_ERROR = { error: "give a time in ms, or { p50, p99 } with a p99 from p50 on" };
const LATENCY = z.union(
  [
    TIME,
    z
      .strictObject({ p50: numberFrom(0.001, YEAR_MS, "a time in ms"), p99: TIME })
      .refine(({ p50, p99 }) => p99 >= p50, LATENCY_ERROR),
  ],
  LATENCY_ERROR,
);

const DOWNSTREAM = z.strictObject({
  limit: z.custom<DownstreamOptions["limit"]>().optional(),
  window: z
    .enum(["fixed", "sliding", "bucket"], { error: 'give "fixed", "sliding" or "bucket"' })
    .optional(),
  latencyMs: LATENCY.optional(),
  retryAfter: z.boolean({ error: "give true or false" }).optional(),
  changes: z
    .array(z.strictObject({ atMs: TIME, limit: z.custom<string>() }), {
      error: "give a list of { atMs, limit }",
    })
    .refine(
      (changes) => changes.every(({ atMs }, at) => at === 0 || atMs >= changes[at - 1]!.atMs),
      {
        error: "sort the changes by their time",
      },
    )
    .optional(),
});

const WEIGHT = numberFrom(0.000_001, 1e9, "a weight");
const KEYS_ERROR = { error: "give a number of keys, a list of keys, or the weight of each key" };

const GENERATED = z.strictObject({
  ratePerSecond: numberFrom(0.000_001, 1e7, "a number of calls per second"),
  durationMs: numberFrom(1, YEAR_MS, "a time in ms"),
  startMs: TIME.optional(),
  pattern: z
    .enum(["even", "poisson", "bursts"], { error: 'give "even", "poisson" or "bursts"' })
    .optional(),
  burst: wholeNumber(1, 1e6, "calls").optional(),
  keys: z
    .union(
      [wholeNumber(1, 1e6, "keys"), z.array(KEY).min(1), z.record(z.string(), WEIGHT)],
      KEYS_ERROR,
    )
    .optional(),
  priorities: z.partialRecord(PRIORITY, WEIGHT).optional(),
  cost: z
    .custom<Cost>()
    .superRefine((cost, context) => {
      if (cost !== undefined) checkCost(cost, context);
    })
    .optional(),
});

const ARRIVALS_ERROR = {
  error: "give { ratePerSecond, durationMs }, a list of these, or a list of arrivals { atMs }",
};

const HISTORY_ERROR = { error: "give what bucket.history() returned" };

const OPTIONS = z.strictObject({
  policy: z.custom<PolicyOptions>((policy) => typeof policy === "object" && policy !== null, {
    error: 'give the limits of a bucket, such as { rate: "100/s" }',
  }),
  arrivals: z.custom<Arrivals>(isArrivals, ARRIVALS_ERROR).optional(),
  history: z
    .object({
      stepMs: numberFrom(1, YEAR_MS, "a time in ms"),
      points: z.array(
        z.object({
          atMs: z.number(HISTORY_ERROR),
          started: z.number(HISTORY_ERROR).min(0, HISTORY_ERROR),
          waiting: z.record(z.string(), z.number().optional()).optional(),
        }),
        HISTORY_ERROR,
      ),
    })
    .optional(),
  replicas: wholeNumber(1, 1_000, "replicas").optional(),
  downstream: DOWNSTREAM.optional(),
  seed: wholeNumber(0, 2 ** 32 - 1, "states").optional(),
  roundTripMs: numberFrom(0.1, 10_000, "a time in ms").optional(),
  untilMs: TIME.optional(),
  onCall: z
    .custom<SimulateOptions["onCall"]>((onCall) => typeof onCall === "function", {
      error: "give a function",
    })
    .optional(),
});

function isArrivals(arrivals: unknown): boolean {
  if (typeof arrivals !== "object" || arrivals === null) return false;
  return Symbol.iterator in arrivals || "ratePerSecond" in arrivals;
}

/** The options of a simulation, with their defaults. */
export type ReadSimulation = Pick<SimulateOptions, "policy"> & {
  readonly arrivals: Arrivals;
  readonly replicas: number;
  readonly downstream: DownstreamOptions;
  readonly seed: number;
  readonly roundTripMs: number;
  readonly untilMs: number;
  readonly onCall: SimulateOptions["onCall"];
};

/** @throws {@link InvalidOptionError} when an option is invalid. */
export function readSimulation(options: unknown): ReadSimulation {
  const read = readOptions(WHERE, OPTIONS, options);
  const { replicas = 1, downstream = {}, seed = 1, roundTripMs = 1, untilMs = Infinity } = read;
  const arrivals = arrivalsOf(read);
  const { policy, onCall } = read;
  return { policy, arrivals, replicas, downstream, seed, roundTripMs, untilMs, onCall };
}

function arrivalsOf({
  arrivals,
  history,
}: Pick<SimulateOptions, "arrivals" | "history">): Arrivals {
  if (arrivals !== undefined && history !== undefined) {
    const remedy = "give arrivals or history, not both";
    throw new InvalidOptionError({ where: WHERE, option: "history", value: history, remedy });
  }
  if (history !== undefined) return arrivalsOfHistory(history);
  if (arrivals !== undefined) return readArrivals(arrivals);
  const remedy = `${ARRIVALS_ERROR.error}, or a history`;
  throw new InvalidOptionError({ where: WHERE, option: "arrivals", value: undefined, remedy });
}

function readArrivals(arrivals: Arrivals): Arrivals {
  if ("ratePerSecond" in arrivals) return readGenerated(arrivals);
  if (
    !Array.isArray(arrivals) ||
    !arrivals.some((each) => typeof each === "object" && each !== null && "ratePerSecond" in each)
  ) {
    return arrivals;
  }
  return (arrivals as readonly GeneratedArrivals[]).map(readGenerated);
}

function readGenerated(given: GeneratedArrivals): GeneratedArrivals {
  return readOptions("simulate().arrivals", GENERATED, given);
}
