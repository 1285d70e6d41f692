import { HORIZON_US } from "../core/limit-makers.ts";
import type { Limit } from "../core/limits/limit.ts";
import { PRIORITIES } from "../core/priority.ts";
import { stepOf } from "../core/scope.ts";
import type { HeldSlot, HeldSlots } from "./held-slots.ts";
import type { Line, Waiter } from "./line.ts";
import { KeyedGroup } from "./keyed-group.ts";
import type { SlotKeeper } from "./slot.ts";

/** One caller in the line of a group. */
export interface Caller extends Waiter {
  /** In the order in which callers came to the bucket. */
  readonly number: number;
  /** How far off its key's time may be, in ms; beyond that it does not wait. */
  readonly patienceMs: number;
  group: Group;
  go(slot: HeldSlot, generation: number): void;
  fail(error: unknown): void;
}

/** What calls of one cost are under, whatever their key. */
export interface Conditions {
  readonly keyLimits: readonly Limit[];
  /** What all keys share. */
  readonly shared: readonly Limit[];
  /** For each of the shared limits and then of the key's. */
  readonly costs: readonly number[];
  /** The policy that all of this goes by. */
  readonly text: string;
}

/** What a group is made of. */
export interface GroupFacts extends Conditions {
  readonly keeper: SlotKeeper;
  readonly name: string;
  /** The key, if it has limits of its own. */
  readonly key: string | undefined;
}

/** Conditions, and what follows from them; all keys that have the same ones share them. */
export interface Terms extends Conditions {
  /** The shared limits and then the key's. */
  readonly limits: readonly Limit[];
  /** Whether its calls hold leases. */
  readonly hasLeases: boolean;
  /** What one call takes of the downstream, in ms. */
  readonly stepMs: number;
  /** How late a slot may be used. */
  readonly mostLateMs: number;
}

/** Calls of one key and cost: a slot of one of them is as good for another. */
export interface Group extends Terms, GroupFacts {
  /** Whether nobody waits in it, and no slot is held. */
  readonly isIdle: boolean;
  /** Lets go of what only those who wait need. */
  rest(): void;
  readonly line: Line<Caller>;
  readonly held: HeldSlots;
  /** Whether callers came that may be sent away; to look for them among 100,000 others would take long. */
  hasImpatient: boolean;
  /** When the key is to be asked again, on `performance.now()`. */
  notBeforeMs: number;
  /** What held these calls back last, as a reply numbers it. */
  bindsAt: number;
}

export function createGroup(facts: GroupFacts): Group {
  return new KeyedGroup(termsOf(facts), facts);
}

export function termsOf(conditions: Conditions): Terms {
  const { shared, keyLimits, costs, text } = conditions;
  const limits = [...shared, ...keyLimits];
  return {
    shared,
    keyLimits,
    costs,
    text,
    limits,
    hasLeases: limits.some(({ kind }) => kind === "concurrency"),
    stepMs: stepOf(limits, costs) / 1_000,
    mostLateMs: lateMs(conditions),
  };
}

/** How many callers of each priority have no slot yet, the most urgent first. */
export function lacking({
  line,
  held,
}: Group): { readonly rank: number; readonly wanted: number }[] {
  const wishes: { rank: number; wanted: number }[] = [];
  let spare = held.size;
  for (let rank = 0; rank < PRIORITIES.length; rank++) {
    const waiting = line.sizeOf(rank);
    const wanted = waiting - Math.min(spare, waiting);
    spare -= waiting - wanted;
    if (wanted > 0) wishes.push({ rank, wanted });
  }
  return wishes;
}

/**
 * A slot may be used late by half an interval: at least by what timers and a
 * busy process are off, at most by one horizon. At 100/s both are 5 ms, which
 * leaves as much to the network before a second can see two calls too many.
 * Where nothing is evenly spaced there is no interval, and a whole horizon is allowed.
 */
function lateMs({ shared, keyLimits, costs }: Conditions): number {
  const horizonMs = HORIZON_US / 1_000;
  // A key's own limit is a gate: it is the shared one that others' slots are spaced by.
  const spacing = shared.length > 0 ? shared : keyLimits;
  if (!spacing.some(({ kind }) => kind === "leaky-bucket")) return horizonMs;
  return Math.min(Math.max(stepOf(spacing, costs) / 2_000, 5), horizonMs);
}
