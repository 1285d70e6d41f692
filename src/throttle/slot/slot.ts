import { AsyncLocalStorage } from "node:async_hooks";
import { HORIZON_MS } from "../../core/policy/limit-makers.ts";
import type { SettledCost, TryOptions } from "../call-options.ts";
import { isByUnit } from "../costs.ts";
import type { LeaseHolder, LeaseKeeper } from "./leases.ts";

/** The answer to a draw: the moment at which one call may start. */
export interface Slot {
  readonly bucket: string;
  /** The tenant, account or endpoint that the call is for. */
  readonly key: string | undefined;
  /** The slot on the Redis clock, in ms since 1970: `1790000000123.456`. */
  readonly atMs: number;
  /** How long the caller waited for it: `37.2`. */
  readonly waitedMs: number;
  /** The generation of the policy under which the slot was drawn. */
  readonly generation: number;
  /** Whether the call counts as running until {@link Slot.release}. */
  readonly hasLease: boolean;
  /** Of a bucket that limits concurrency: aborted before the call's lease ends, if it cannot be renewed. */
  readonly signal: AbortSignal;
  /**
   * Books the true cost of the call in place of its estimate: what the estimate lacked is booked now, and what it had
   * too much is given back. Units that are left out, or undefined, stay as estimated. Only the first settled cost counts.
   *
   * @throws {@link InvalidOptionError} when a number can never be a cost, or a unit is unknown.
   */
  settle(cost: SettledCost): Promise<void>;
  /** Ends the call's lease, so that another can start; without a concurrency limit it does nothing. */
  release(): void;
  /** Releases at the end of a block: `using slot = await bucket.draw()`. */
  [Symbol.dispose](): void;
  [Symbol.asyncDispose](): Promise<void>;
}

/** The part of a bucket that its slots use. */
export interface SlotContext {
  readonly name: string;
  readonly leases: LeaseKeeper;
  settle(
    slot: { readonly slotUs: number; readonly group: LeaseHolder },
    cost: SettledCost,
  ): Promise<void>;
}

/** Calls of one key and cost: a slot that was drawn for one of them serves any other. */
interface SlotGroup extends LeaseHolder {
  readonly keeper: SlotContext;
}

/** The call that a slot was drawn for. */
export interface DrawnFor {
  readonly group: SlotGroup;
  readonly key: string | undefined;
  /** When its wait began, on `performance.now()`. */
  readonly sinceMs: number;
}

/** When slots are handed out, and their generation. Many slots share one: to read the clock takes longer than the rest. */
export interface Start {
  readonly generation: number;
  /** On `performance.now()`. */
  readonly nowMs: number;
}

const NEVER = new AbortController().signal;

/** A class, since a million of them may be drawn in a second and closures would cost more than the draw. */
export class DrawnSlot implements Slot {
  readonly bucket: string;
  readonly key: string | undefined;
  readonly atMs: number;
  readonly waitedMs: number;
  readonly generation: number;
  readonly #group: SlotGroup;
  #lease: number;
  #settling: Promise<void> | undefined;

  constructor(
    { group, key, sinceMs }: DrawnFor,
    { slotUs, lease }: { readonly slotUs: number; readonly lease: number },
    { generation, nowMs }: Start,
  ) {
    this.bucket = group.keeper.name;
    this.key = key;
    this.atMs = slotUs / 1_000;
    this.waitedMs = nowMs - sinceMs;
    this.generation = generation;
    this.#group = group;
    this.#lease = lease;
  }

  get hasLease(): boolean {
    return this.#lease > 0;
  }

  get signal(): AbortSignal {
    return this.#lease === 0 ? NEVER : this.#group.keeper.leases.signalOf(this.#lease);
  }

  async settle(cost: SettledCost): Promise<void> {
    // A stream has no cost until its end: this is not yet the one that counts.
    if (isEmpty(cost)) return;
    const slotUs = Math.round(this.atMs * 1_000);
    this.#settling ??= this.#group.keeper.settle({ slotUs, group: this.#group }, cost);
    try {
      await this.#settling;
    } catch (error) {
      // Nothing was changed: a valid cost may still follow.
      this.#settling = undefined;
      throw error;
    }
  }

  release(): void {
    if (this.#lease === 0) return;
    this.#group.keeper.leases.release(this.#lease, this.#group);
    this.#lease = 0;
  }

  [Symbol.dispose](): void {
    this.release();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.release();
  }
}

function isEmpty(cost: SettledCost): boolean {
  if (!isByUnit(cost)) return false;
  return Object.values(cost).every((amount) => amount === undefined || amount === null);
}

interface SlotInHand {
  /** The bucket that it came from; two sluices may each have one of the same name. */
  readonly bucket: object;
  readonly slot: Slot;
  /** On `performance.now()`; from then on the slot is stale, and the call draws one of its own. */
  readonly staleAtMs: number;
  isUsed: boolean;
}

const inHand = new AsyncLocalStorage<SlotInHand>();

/**
 * Runs a handler that was started by a slot, and lets the first call that it
 * makes through the same bucket, within one horizon, leave on that slot:
 * otherwise each job whose handler calls a throttled client would take two.
 */
export function runWithJobSlot<T>(
  { bucket, slot }: { bucket: object; slot: Slot },
  handler: () => T,
): T {
  const staleAtMs = performance.now() + HORIZON_MS;
  return inHand.run({ bucket, slot, staleAtMs, isUsed: false }, handler);
}

/**
 * The slot in hand, if this is the first call through its bucket, and if the slot is not stale and was drawn for such a
 * call. If it does not fit, its lease is given back: a handler that kept it while it waits for another lease could wait
 * for itself.
 */
export function takeJobSlot(bucket: object, options: TryOptions): Slot | undefined {
  const hand = inHand.getStore();
  if (hand === undefined || hand.isUsed || hand.bucket !== bucket) return undefined;
  const doesFit = fits(hand, options);
  hand.isUsed = doesFit || hand.slot.hasLease;
  if (doesFit) return hand.slot;
  hand.slot.release();
  return undefined;
}

function fits({ slot, staleAtMs }: SlotInHand, { key, cost = 1 }: TryOptions): boolean {
  return cost === 1 && (key === undefined || key === slot.key) && performance.now() < staleAtMs;
}
