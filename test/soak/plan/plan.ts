import fc from "fast-check";
import { FAULT_KINDS, kindOf, type FaultName } from "./fault-kinds.ts";

/** One fault of a plan; times are whole ms since the load began. */
export interface PlannedFault {
  readonly name: FaultName;
  readonly startMs: number;
  readonly lengthMs: number;
  /** The index of the worker or replica that it strikes. */
  readonly target: number;
  /** Its strength, from 0 to 1, for faults that have one. */
  readonly strength: number;
}

/** What a soak does, and when; the seed and the minutes determine all of it. */
export interface Plan {
  readonly seed: number;
  readonly minutes: number;
  /** The kinds of faults, if these are not all. */
  readonly only?: readonly FaultName[] | undefined;
  /** The bucket's burst. */
  readonly burst: number;
  readonly faults: readonly PlannedFault[];
}

/** The number of workers, and of replicas. */
export const TARGETS = 3;
const CALM_BEFORE_MS = 5_000;
const CALM_AFTER_MS = 10_000;
/** The pause between two faults, so that the effects of one show before the next. */
const CALM_MS: readonly [number, number] = [4_000, 7_000];
const BURSTS = [1, 5];
const NAMES = Object.keys(FAULT_KINDS) as FaultName[];
/** Mixes the seed: neighbouring seeds would begin alike. */
const SPREAD = 0x9e3779b1;

/** Yields each kind, or each of some, once, in random order, before any comes again. */
export function planOf(seed: number, minutes: number, only?: readonly FaultName[]): Plan {
  const names = only ?? NAMES;
  const endMs = minutes * 60_000 - CALM_AFTER_MS;
  const faults: PlannedFault[] = [];
  const rounds = Math.ceil(endMs / (names.length * CALM_MS[0])) + 1;
  const part = fc.integer({ min: 0, max: 1_000 }).map((thousandths) => thousandths / 1_000);
  const dice = fc.record({
    length: part,
    calm: part,
    strength: part,
    target: fc.nat({ max: TARGETS - 1 }),
  });
  const count = names.length;
  const order = fc.shuffledSubarray([...names], { minLength: count, maxLength: count });
  const round = fc.record({
    order,
    throws: fc.array(dice, { minLength: count, maxLength: count }),
    burst: fc.constantFrom(...BURSTS),
  });
  const drawn = fc.sample(fc.noBias(round), { seed: Math.imul(seed, SPREAD), numRuns: rounds });
  let startMs = CALM_BEFORE_MS;
  for (const { order: drawnNames, throws } of drawn) {
    for (const [index, name] of drawnNames.entries()) {
      const { length, calm, strength, target } = throws[index]!;
      const lengthMs = between(kindOf(name).lengthMs, length);
      if (startMs + lengthMs > endMs)
        return { seed, minutes, only, burst: drawn[0]!.burst, faults };
      faults.push({ name, startMs, lengthMs, target, strength });
      startMs += lengthMs + between(CALM_MS, calm);
    }
  }
  throw new Error("the rounds of a plan fill its time");
}

/** Formats a plan as lines of text. */
export function formatPlan({ seed, minutes, burst, faults }: Plan): string[] {
  const lines = faults.map(({ name, startMs, lengthMs, target }) => {
    const struck = kindOf(name).target;
    const what = struck === undefined ? name : `${name} (${struck} ${target + 1})`;
    return `${seconds(startMs)}  ${seconds(lengthMs)}  ${what}`;
  });
  const head = `seed ${seed}, ${minutes} min, burst ${burst}, ${faults.length} faults`;
  return [head, "  start    long  what", ...lines];
}

function between([from, to]: readonly [number, number], part: number): number {
  return Math.round(from + part * (to - from));
}

function seconds(ms: number): string {
  return `${(ms / 1_000).toFixed(1)} s`.padStart(7);
}
