import { monitorEventLoopDelay } from "node:perf_hooks";
import { setTimeout as pause } from "node:timers/promises";
import { Redis } from "ioredis";
import {
  startFakeDownstream,
  type Arrival,
  type FakeAnswer,
} from "../../entries/testing/fake-downstream.ts";
import { worstWindow } from "../../entries/testing/worst-window.ts";
import { isKept, type Figure } from "./figure.ts";
import { startFleet } from "./fleet.ts";
import type { Plan } from "./limiters/contract.ts";
import type { LimiterName } from "./limiters/limiters.ts";
import type { PrivateRedis } from "./private-redis.ts";
import { BY } from "./replica.ts";

/** A situation in which limiters fail, and what a good one does in it. */
export interface Scenario {
  readonly name: string;
  readonly title: string;
  /** What happens, in one or two sentences. */
  readonly about: string;
  /** Where users published the case. Defaults to none. */
  readonly published?: string;
  readonly replicas: number;
  readonly plan: (isQuick: boolean) => Plan;
  /**
   * True if the scenario lasts about a minute and makes few calls. Such scenarios run side by side, after the others.
   * Defaults to false.
   */
  readonly isLong?: boolean;
  /** True if the scenario kills the server of Redis. Defaults to false. */
  readonly killsRedis?: boolean;
  readonly run: (stage: Stage) => Promise<readonly Figure[]>;
}

/** What a scenario can do and see: its replicas, and the log of its downstream. */
export interface Stage {
  readonly isQuick: boolean;
  readonly plan: Plan;
  readonly log: DownstreamLog;
  /** Only for scenarios that kill Redis. */
  readonly redis: PrivateRedis | undefined;
  /** Keeps callers busy in each replica, or in one, until the end of the scenario. */
  readonly loop: (options: {
    readonly key?: string;
    readonly callers: number;
    readonly replica?: number;
  }) => void;
  /** Makes calls at once in one replica. */
  readonly burst: (options: { readonly replica: number; readonly calls: number }) => void;
  readonly kill: (replica: number) => Promise<void>;
  readonly pause: (ms: number) => Promise<void>;
  /** Waits until a condition holds, at most `limitMs`. */
  readonly until: (condition: () => boolean, limitMs: number) => Promise<void>;
  /** Sets how the downstream responds to each call. Undefined sends a 200. */
  readonly respond: (how: (call: Arrival) => FakeAnswer | undefined) => void;
}

/** The calls that the downstream received. Times are ms on its clock. */
interface DownstreamLog {
  nowMs(): number;
  readonly refused: number;
  /** The number of calls that it accepted in a period, optionally of one path or one replica. */
  accepted(period: Period, of?: { readonly path?: string; readonly replica?: number }): number;
  /** The most calls, accepted or refused, in any second of a period. */
  worstSecond(period?: Partial<Period>, path?: string): number;
  /** Seconds after `fromMs` until it accepted this many calls within one second. Undefined if it never did. */
  recoveredAfter(fromMs: number, calls: number): number | undefined;
}

interface Period {
  readonly fromMs: number;
  readonly toMs: number;
}

export interface Outcome {
  readonly limiter: LimiterName;
  readonly scenario: string;
  /** "no such feature" if the limiter cannot declare the limits of the scenario. */
  readonly result: "kept" | "missed" | "not run" | "no such feature";
  /** Why it did not run, or which feature is missing. */
  readonly reason?: string;
  readonly figures: readonly Figure[];
  /** Calls in each part of the run, for a picture. */
  readonly timeline?: Timeline;
  /** The longest time for which this process could not run. Calls that pile up in it look like a burst. */
  readonly stoodStillMs?: number;
}

export interface Timeline {
  readonly partMs: number;
  readonly accepted: readonly number[];
  readonly refused: readonly number[];
}

export interface StageSetup {
  readonly limiter: LimiterName;
  readonly redisUrl: string;
  readonly privateRedis: PrivateRedis | undefined;
  /** The start of all keys of this run. */
  readonly prefix: string;
  readonly isQuick: boolean;
  readonly signal: AbortSignal;
}

/** The parts of the picture of a run. */
const PARTS = 120;
const LEAST_PART_MS = 50;

/** Runs one scenario with one limiter. */
export async function runScenario(scenario: Scenario, setup: StageSetup): Promise<Outcome> {
  const { limiter, redisUrl, privateRedis, prefix, isQuick, signal } = setup;
  const plan = scenario.plan(isQuick);
  let respond: (call: Arrival) => FakeAnswer | undefined = () => undefined;
  const downstream = await startFakeDownstream({
    keepBodies: false,
    answer: (call) => respond(call),
  });
  const stalls = monitorEventLoopDelay({ resolution: 1 });
  try {
    const { url } = downstream;
    await using fleet = await startFleet(scenario.replicas, {
      limiter,
      redisUrl,
      prefix,
      plan,
      url,
    });
    stalls.enable();
    // Leaves out the first call of each replica, which only opens its connection.
    const arrivals = (): readonly Arrival[] => downstream.arrivals.slice(fleet.size);
    const figures = await scenario.run({
      isQuick,
      plan,
      log: readLog(arrivals),
      redis: privateRedis,
      loop({ key = "all", callers, replica }) {
        const from = replica ?? 0;
        const to = replica ?? fleet.size - 1;
        for (let at = from; at <= to; at++) fleet.send(at, { do: "loop", key, callers });
      },
      burst: ({ replica, calls }) => fleet.send(replica, { do: "burst", key: "all", calls }),
      kill: (replica) => fleet.kill(replica),
      pause: (ms) => pause(ms, undefined, { signal }),
      async until(condition, limitMs) {
        const untilMs = performance.now() + limitMs;
        while (!condition() && performance.now() < untilMs) await pause(20, undefined, { signal });
      },
      respond: (next) => void (respond = next),
    });
    const result = figures.every(isKept) ? "kept" : "missed";
    const timeline = timelineOf(arrivals());
    const stoodStillMs = Math.round(stalls.max / 1e6);
    return { limiter, scenario: scenario.name, result, figures, timeline, stoodStillMs };
  } finally {
    stalls.disable();
    await downstream.close();
  }
}

function readLog(arrivals: () => readonly Arrival[]): DownstreamLog {
  const isAccepted = ({ status }: Arrival): boolean => status !== 429;
  return {
    nowMs: () => performance.now(),
    get refused() {
      return arrivals().filter((call) => !isAccepted(call)).length;
    },
    accepted({ fromMs, toMs }, { path, replica } = {}) {
      return arrivals().filter(
        (call) =>
          isAccepted(call) &&
          call.atMs >= fromMs &&
          call.atMs < toMs &&
          (path === undefined || call.path === `/${path}`) &&
          (replica === undefined || call.headers[BY] === String(replica)),
      ).length;
    },
    worstSecond({ fromMs = -Infinity, toMs = Infinity } = {}, path) {
      const times = arrivals()
        .filter((call) => call.atMs >= fromMs && call.atMs < toMs)
        .filter((call) => path === undefined || call.path === `/${path}`)
        .map(({ atMs }) => atMs);
      return worstWindow(times, 1_000);
    },
    recoveredAfter(fromMs, calls) {
      const times = arrivals()
        .filter(isAccepted)
        .map(({ atMs }) => atMs);
      const at = times.findIndex((atMs, index) => {
        const first = times[index - calls + 1];
        return atMs >= fromMs && first !== undefined && atMs - first < 1_000;
      });
      return at === -1 ? undefined : (times[at]! - fromMs) / 1_000;
    },
  };
}

function timelineOf(arrivals: readonly Arrival[]): Timeline {
  const fromMs = arrivals[0]?.atMs ?? 0;
  const lengthMs = (arrivals.at(-1)?.atMs ?? 0) - fromMs;
  const partMs = Math.max(LEAST_PART_MS, Math.ceil((lengthMs + 1) / PARTS));
  const accepted = Array.from({ length: Math.ceil((lengthMs + 1) / partMs) }, () => 0);
  const refused = accepted.map(() => 0);
  for (const { atMs, status } of arrivals) {
    const counts = status === 429 ? refused : accepted;
    counts[Math.floor((atMs - fromMs) / partMs)]! += 1;
  }
  return { partMs, accepted, refused };
}

/** Removes all keys of a run. They contain its prefix, wherever a limiter puts it. */
export async function removeKeys(redisUrl: string, prefix: string): Promise<void> {
  const redis = new Redis(redisUrl);
  try {
    for await (const keys of redis.scanStream({ match: `*${prefix}*`, count: 1_000 })) {
      if ((keys as string[]).length > 0) await redis.unlink(keys as string[]);
    }
  } finally {
    redis.disconnect();
  }
}
