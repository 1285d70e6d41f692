import { createHash } from "node:crypto";
import { assertArgumentCount } from "../../core/input/arguments.ts";
import { namedOf, textOfNamed, type Key, type NamedKeys } from "../../core/key-path.ts";
import type { GivenSlot, SlotNote, SlotNoted } from "../../core/stores/insight/slots.ts";
import type { SettledCost } from "../call-options.ts";
import { isByUnit, type Cost } from "../costs.ts";
import type { LeaseHolder, LeaseKeeper } from "./leases.ts";

/** The answer to a draw: the moment at which one call may start. */
export interface Slot {
  readonly bucket: string;
  /** The tenant, account or endpoint that the call is for. */
  readonly key: Key | undefined;
  /** The keys of a call that has several side by side. */
  readonly keys: NamedKeys | undefined;
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

/** What is booked for one call: the costs of its group, at its slot. */
export interface Booking {
  readonly group: LeaseHolder;
  readonly slotUs: number;
  /** What of it was booked later, for each limit of the group, and at which slot. */
  readonly later?: { readonly slotUs: number; readonly costs: readonly number[] } | undefined;
}

/** What another process has to know of a slot to settle it and to end its lease. */
export interface SlotFacts {
  readonly slotUs: number;
  readonly generation: number;
  /** The text of its key. */
  readonly key: string | undefined;
  /** What it was drawn with. */
  readonly cost: Cost | undefined;
  /** The digest of the policy that it was drawn under. */
  readonly policy: string;
  /** 0: it has none. */
  readonly lease: number;
  /** The process that drew it, as the store knows it. */
  readonly asker: string;
}

const DIGEST_LENGTH = 8;
const digests = new WeakMap<object, string>();

/** Tells a policy from others, in a few characters. */
export function policyDigest(terms: { readonly text: string }): string {
  const known = digests.get(terms);
  if (known !== undefined) return known;
  const all = createHash("sha256").update(terms.text).digest("base64url");
  const digest = all.slice(0, DIGEST_LENGTH);
  digests.set(terms, digest);
  return digest;
}

/** The part of a bucket that its slots use. */
export interface SlotContext {
  readonly name: string;
  readonly leases: LeaseKeeper;
  settle(booking: Booking, cost: SettledCost): Promise<void>;
  /** Books the cost of a slot that a server has given, if it is the first one. */
  settleGiven(booking: Booking, cost: SettledCost, slot: GivenSlot): Promise<SlotNoted>;
  /** Notes what else becomes of such a slot. */
  noteSlot(note: Omit<SlotNote, "bucket">): Promise<SlotNoted>;
  /** Gives back, in the background, what a call turns out not to need. */
  giveBack(unneeded: Unneeded): void;
}

/** What is to change of what is booked at a slot, for each limit of its group. */
export interface Unneeded {
  readonly group: LeaseHolder;
  readonly slotUs: number;
  readonly deltas: readonly number[];
  /** As in `SettleRequest`. */
  readonly shadowDeltas?: readonly number[] | undefined;
  readonly isUnused?: boolean | undefined;
}

/** Calls of one key and cost: a slot that was drawn for one of them serves any other. */
interface SlotGroup extends LeaseHolder {
  readonly keeper: SlotContext;
}

/** The call that a slot was drawn for. */
export interface DrawnFor {
  readonly group: SlotGroup;
  /** The text of its key. */
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
  readonly key: Key | undefined;
  readonly keys: NamedKeys | undefined;
  readonly atMs: number;
  readonly waitedMs: number;
  readonly generation: number;
  readonly #group: SlotGroup;
  #lease: number;
  #booking: Booking | undefined;
  #heir: Slot | undefined;
  #settling: Promise<void> | undefined;
  #settled: SettledCost | undefined;

  constructor(
    { group, key, sinceMs }: DrawnFor,
    { slotUs, lease }: { readonly slotUs: number; readonly lease: number },
    { generation, nowMs }: Start,
  ) {
    const named = namedOf(key);
    this.bucket = group.keeper.name;
    this.key = named.key;
    this.keys = named.keys;
    this.atMs = slotUs / 1_000;
    this.waitedMs = nowMs - sinceMs;
    this.generation = generation;
    this.#group = group;
    this.#lease = lease;
  }

  /** The bucket, or the part of one, that it was drawn from. */
  get keeper(): SlotContext {
    return this.#group.keeper;
  }

  get slotUs(): number {
    return Math.round(this.atMs * 1_000);
  }

  /** What is booked for its call. Another call that leaves on it may change that. */
  get booking(): Booking {
    return (this.#booking ??= { group: this.#group, slotUs: this.slotUs });
  }

  set booking(booking: Booking) {
    this.#booking = booking;
  }

  /** The slot that its call drew in place of it: the true cost of the call is settled there. */
  set heir(heir: Slot) {
    this.#heir = heir;
  }

  /** The cost that was settled, if one was. */
  get settled(): SettledCost | undefined {
    return this.#settled;
  }

  /** What another process has to know of it, which was drawn for this cost. */
  factsFor(cost: Cost | undefined): SlotFacts {
    const { slotUs, generation } = this;
    const { callTerms, keeper } = this.#group;
    const { asker } = keeper.leases;
    const key = textOfNamed(this);
    return {
      slotUs,
      generation,
      key,
      cost,
      policy: policyDigest(callTerms),
      lease: this.#lease,
      asker,
    };
  }

  get hasLease(): boolean {
    return this.#lease > 0;
  }

  get signal(): AbortSignal {
    return this.#lease === 0 ? NEVER : this.#group.keeper.leases.signalOf(this.#lease);
  }

  /** Calls back as `signal` would be aborted, which is cheaper. */
  onLeaseEnding(listener: (reason: unknown) => void): void {
    if (this.#lease > 0) this.#group.keeper.leases.onEnding(this.#lease, listener);
  }

  async settle(cost: SettledCost): Promise<void> {
    // A stream has no cost until its end: this is not yet the one that counts.
    if (isEmpty(cost)) return;
    if (this.#settling === undefined) {
      if (this.#heir !== undefined) return this.#heir.settle(cost);
      this.#settled = cost;
      this.#settling = this.#group.keeper.settle(this.booking, cost);
    }
    try {
      await this.#settling;
    } catch (error) {
      // Nothing was changed: a valid cost may still follow.
      this.#settling = undefined;
      this.#settled = undefined;
      throw error;
    }
  }

  /** Settles it where other processes may settle it, too; answers what it was before. */
  async settleGiven(cost: SettledCost, slot: GivenSlot): Promise<SlotNoted> {
    const { keeper } = this.#group;
    // Of a cost that says nothing yet, none is booked.
    if (isEmpty(cost)) return keeper.noteSlot({ ...slot, what: "look" });
    return keeper.settleGiven(this.booking, cost, slot);
  }

  /** Renews a lease that another process has drawn, and keeps it from now on. Resolves to false if it was lost. */
  async takeOver(): Promise<boolean> {
    return this.#lease === 0 || this.#group.keeper.leases.takeOver(this.#lease, this.#group);
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

/** Makes the methods of slots that users see refuse arguments that they would not read. */
export function assertSlotArguments(slots: Slot): void {
  assertArgumentCount(slots, { throws: ["release"], only: ["settle", "release"] });
}

assertSlotArguments(DrawnSlot.prototype);
