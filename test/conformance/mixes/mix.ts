import {
  fixedWindow,
  leakyBucket,
  slidingLog,
  slidingWindow,
  tokenBucket,
} from "../../../src/core/policy/limit-makers.ts";
import {
  encodeKey,
  textOfNamedKey,
  textOfNamedKeys,
  type Key,
  type NamedKeys,
} from "../../../src/core/key-path.ts";
import { InvalidOptionError } from "../../../src/core/errors.ts";
import { compilePolicy, type PolicyOptions } from "../../../src/core/policy/policy.ts";
import type { Limit } from "../../../src/core/limits/rule.ts";

/** A caller that calls again as soon as it has gone. */
export interface MixCaller {
  readonly replica: number;
  readonly key?: Key | undefined;
  readonly keys?: NamedKeys | undefined;
  readonly cost: number | Readonly<Record<string, number>>;
  readonly priority: "critical" | "normal" | "low";
  readonly startMs: number;
  /** How long it thinks between two calls. */
  readonly thinkMs: number;
}

/** The encoded key of a caller. */
export function keyOf({ key, keys }: MixCaller): string | undefined {
  if (keys !== undefined) {
    return textOfNamedKeys(
      Object.entries(keys).map(([name, value]) => textOfNamedKey(name, value)),
    );
  }
  return key === undefined ? undefined : encodeKey(key);
}

/** Limits, and callers of several replicas that keep them busy. */
export interface Mix {
  readonly name: string;
  readonly policy: PolicyOptions;
  readonly callers: readonly MixCaller[];
  readonly hasPriorities: boolean;
}

/** A generator of numbers from 0 to 1 that a seed decides (mulberry32, Tommy Ettinger, 2017). */
export function randomOf(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Kinds of limits, shared or per key, costs, priorities, and callers per replica, all by one seed. */
export function mixOf(seed: number): Mix {
  const random = randomOf(seed * 7_919 + 13);
  for (;;) {
    const mix = anyMix(seed, random);
    if (isAllowed(mix.policy)) return mix;
  }
}

/** Whether the limits fit together: one that could never hold a call back beside another is refused. */
export function isAllowed(policy: PolicyOptions): boolean {
  try {
    compilePolicy("mix", policy);
    return true;
  } catch (error) {
    if (error instanceof InvalidOptionError) return false;
    throw error;
  }
}

/** What a mix is made of, by one generator of numbers. */
export interface Dice {
  readonly whole: (from: number, to: number) => number;
  readonly pick: <T>(list: readonly T[]) => T;
  /** A limit of any kind, of which calls take `most` units at most. */
  readonly limitOf: (rate: number, unit: string, most: number) => Limit;
}

export function diceOf(random: () => number): Dice {
  const whole = (from: number, to: number): number => from + Math.floor(random() * (to - from + 1));
  const pick = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)]!;
  const limitOf = (rate: number, unit: string, most: number): Limit => {
    const kind = pick(["leaky", "leaky", "token", "log", "window", "fixed"]);
    const room = Math.max(most, pick([1, most, rate]));
    if (kind === "leaky") return leakyBucket(`${rate}/s`, { unit, burst: room });
    if (kind === "token") return tokenBucket({ unit, capacity: room, refill: `${rate}/s` });
    const seconds = pick([1, 1, 2]);
    const max = Math.max(most, rate * seconds);
    const per = `${Math.max(seconds, Math.ceil(max / rate))}s`;
    if (kind === "log") return slidingLog(max, per, { unit });
    return kind === "window" ? slidingWindow(max, per, { unit }) : fixedWindow(max, per, { unit });
  };
  return { whole, pick, limitOf };
}

function anyMix(seed: number, random: () => number): Mix {
  const { whole, pick, limitOf } = diceOf(random);
  const replicas = pick([1, 2, 2, 3, 4, 8]);
  const isTokens = random() < 0.5;
  const rate = pick([5, 20, 50, 100, 200]);
  const amounts = Array.from({ length: isTokens ? whole(1, 4) : 1 }, () =>
    isTokens ? pick([10, 50, 100, 200, 1_000, 3_000]) : 1,
  );
  const mean = amounts.reduce((sum, amount) => sum + amount, 0) / amounts.length;
  const where = pick(["shared", "shared", "key", "both"] as const);
  const keys = where === "shared" ? 0 : whole(1, 5);
  const unit = isTokens ? "tokens" : "calls";
  const main = limitOf(Math.max(1, Math.round(rate * mean)), unit, Math.max(...amounts));
  const limits = where === "shared" ? [main] : [];
  if (where === "both") {
    limits.push(limitOf(Math.max(1, Math.round(rate * keys * pick([0.5, 0.8, 2]))), "calls", 1));
  }
  if (where === "shared" && isTokens && random() < 0.5) limits.push(limitOf(rate, "calls", 1));
  const hasPriorities = random() < 0.2;
  const priorities = hasPriorities
    ? (["critical", "normal", "low"] as const)
    : (["normal"] as const);

  const counts = Array.from({ length: replicas }, () => pick([1, 2, 5, 10, 20, 30]));
  const places = counts.flatMap((count, replica) =>
    Array.from({ length: count }, () => ({ replica, key: whole(0, Math.max(0, keys - 1)) })),
  );
  // Work waits all the time, for each key.
  for (let key = 0; key < Math.max(1, keys); key++) {
    for (let each = 0; each < 6; each++) places.push({ replica: whole(0, replicas - 1), key });
  }
  const last = priorities.at(-1)!;
  const callers = places.map(({ replica, key }, index): MixCaller => {
    const isSteady = index >= places.length - 6 * Math.max(1, keys);
    const priority = isSteady ? last : pick(priorities);
    return {
      replica,
      key: keys === 0 ? undefined : `key ${key}`,
      cost: isTokens ? { tokens: pick(amounts) } : 1,
      priority,
      startMs: whole(0, 300),
      thinkMs: priority === last ? 0 : (2_000 * random() * places.length) / rate,
    };
  });
  const policy: PolicyOptions =
    where === "shared"
      ? { limits, fair: false }
      : { ...(limits.length > 0 && { limits }), perKey: { limits: [main] }, fair: false };
  const name = `${seed}: ${where}, ${replicas} replicas, ${callers.length} callers`;
  return { name, policy, callers, hasPriorities };
}
