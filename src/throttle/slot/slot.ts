import { createHash } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";
import * as z from "zod";
import { reasonOf } from "../../core/describe.ts";
import { assertArgumentCount } from "../../core/input/arguments.ts";
import { readOptions } from "../../core/input/options.ts";
import { namedOf, type Key, type NamedKeys } from "../../core/key-path.ts";
import type { SettleRequest } from "../../core/store.ts";
import type { GivenSlot, SlotNote, SlotNoted } from "../../core/stores/insight/slots.ts";
import type { SettledCost, SettleBy } from "../call-options.ts";
import { callOutcomeOf, type CallOutcome } from "../feedback/call-outcome.ts";
import { budgetCostsOf, differences, isByUnit, shadowDifferences, type Cost } from "../costs.ts";
import { assertCounted, settlingTerms, type BucketContext } from "../known-policy.ts";
import type { LeaseHolder, LeaseKeeper } from "./leases.ts";

/** The result of a draw: permission for one call to start. */
export interface Slot {
  readonly bucket: string;
  /** The tenant, account or endpoint that the call is for. */
  readonly key: Key | undefined;
  /** The named keys of the call, if the call has several keys. */
  readonly keys: NamedKeys | undefined;
  /** The slot's time on the Redis clock, in ms since 1970: `1790000000123.456`. */
  readonly atMs: number;
  /** How long the caller waited for the slot, in ms: `37.2`. */
  readonly waitedMs: number;
  /** The generation of the policy under which the slot was drawn. */
  readonly generation: number;
  /** True if the call counts as running until {@link Slot.release}, because a concurrency limit applies. */
  readonly hasLease: boolean;
  /**
   * Aborts before the call's lease expires, if the lease cannot be renewed. Never aborts without a concurrency limit.
   */
  readonly signal: AbortSignal;
  /**
   * Replaces the estimated cost of the call with its true cost. If the true cost is higher, the difference is booked;
   * if it is lower, the difference is returned. Omitted and undefined units keep their estimates. Only the first
   * settled cost counts.
   *
   * @throws {@link InvalidOptionError} when a number can never be a cost, or a unit is unknown.
   */
  settle(cost: SettledCost): Promise<void>;
  /**
   * Ends the call's lease, so that another call can start. Does nothing without a concurrency limit.
   *
   * @throws {@link InvalidOptionError} when an option is unknown.
   */
  release(options?: ReleaseOptions): void;
  /** Releases the slot at the end of a block: `using slot = await bucket.draw()`. */
  [Symbol.dispose](): void;
  [Symbol.asyncDispose](): Promise<void>;
}

export type { CallOutcome };

/** The options of {@link Slot.release}. */
export interface ReleaseOptions {
  /**
   * How the call ended, for a concurrency limit that adapts to latency: `"dropped"` if it timed out or the downstream was
   * overloaded, `"ignored"` if its latency says nothing about the load. Wrapped calls set it by themselves. Defaults to
   * `"done"`.
   */
  readonly outcome?: CallOutcome | undefined;
}

const RELEASE = z.strictObject({
  outcome: z
    .enum(["done", "dropped", "ignored"], { error: 'give "done", "dropped" or "ignored"' })
    .optional(),
});

/** A slot with its encoded key, for internal use. */
export interface KeyedSlot extends Slot {
  /** The encoded key of the call. It is stored so that no result has to encode the key again. */
  readonly encodedKey: string | undefined;
  /** The name of the member that the slot is for. Undefined unless the bucket is a pool. */
  readonly member?: string | undefined;
  /**
   * Keeps the estimate of a call whose actual cost is unknown. Without this, a budget would get the estimate back after
   * its `reserveMs`.
   */
  keepEstimate?(): void;
  /** Records how the call ended, from its result or error, if a concurrency limit adapts to latency. */
  noteOutcome?(resultOrError: unknown): void;
}

/** Where the cost of one call is booked: under the limits of a group, at the time of a slot. */
interface Booking {
  readonly group: LeaseHolder;
  readonly slotUs: number;
  /** The process that drew the slot, while the estimate is only reserved. */
  readonly reservedBy?: string | undefined;
  /**
   * The costs that an additional draw booked at a later slot, for each limit of the group. Undefined without such a
   * draw.
   */
  readonly later?: { readonly slotUs: number; readonly costs: readonly number[] } | undefined;
}

/** The data that another process needs to settle a slot and end the slot's lease. */
export interface SlotFacts {
  readonly slotUs: number;
  readonly generation: number;
  /** The encoded key. */
  readonly key: string | undefined;
  /** The cost with which the slot was drawn. */
  readonly cost: Cost | undefined;
  /** The digest of the policy under which the slot was drawn. */
  readonly policy: string;
  /** True if the estimate is only reserved, under a budget. */
  readonly reserves?: boolean | undefined;
  /** The lease number of the slot. 0 without a lease. */
  readonly lease: number;
  /** The name by which the store knows the process that drew the slot. */
  readonly asker: string;
  /** In a pool, the name of the slot's member. */
  readonly member?: string | undefined;
}

const DIGEST_LENGTH = 8;
const digests = new WeakMap<object, string>();

/** Returns a short digest that identifies a policy. */
export function policyDigest(terms: { readonly text: string }): string {
  const known = digests.get(terms);
  if (known !== undefined) return known;
  const all = createHash("sha256").update(terms.text).digest("base64url");
  const digest = all.slice(0, DIGEST_LENGTH);
  digests.set(terms, digest);
  return digest;
}

/** The functions of a bucket that its slots use. */
export interface SlotContext {
  readonly name: string;
  readonly leases: LeaseKeeper;
  settle(booking: Booking, cost: SettledCost): Promise<void>;
  /** Books the true cost of a slot that a server handed out, unless a cost was settled before. */
  settleGiven(booking: Booking, cost: SettledCost, slot: GivenSlot): Promise<SlotNoted>;
  /** Records another event of a slot that a server handed out. */
  noteSlot(note: Omit<SlotNote, "bucket">): Promise<SlotNoted>;
  /** Returns the costs that a call does not need, in the background. */
  giveBack(change: CostChange): void;
  /** Turns the reserved estimate of a call into its cost, in the background. */
  keepEstimate(booking: Booking): void;
}

/** A change of the cost that is booked at a slot, with one number for each limit of the group. */
interface CostChange {
  readonly group: LeaseHolder;
  readonly slotUs: number;
  readonly deltas: readonly number[];
  /** See `SettleRequest`. */
  readonly shadowDeltas?: readonly number[] | undefined;
  readonly isUnused?: boolean | undefined;
  readonly reserved?: SettleRequest["reserved"];
}

/** A group of calls with the same key and cost, which can use each other's slots. */
interface SlotGroup extends LeaseHolder {
  readonly keeper: SlotContext;
  /** The member of a pool that the calls use. */
  readonly member?: { readonly name: string } | undefined;
}

/** The call that a slot was drawn for. */
export interface DrawnFor {
  readonly group: SlotGroup;
  /** The encoded key. */
  readonly key: string | undefined;
  /** When the call began to wait, on `performance.now()`. */
  readonly sinceMs: number;
}

/**
 * The time at which slots are handed out, and their generation. Many slots share one such object, because reading the
 * clock for each slot would take too long.
 */
export interface Start {
  readonly generation: number;
  /** The time at which the slots are handed out, on `performance.now()`. */
  readonly nowMs: number;
  /** True if the calls started earlier, at an unknown time. */
  readonly hasStarted?: boolean | undefined;
}

const NEVER = new AbortController().signal;

/**
 * A drawn slot. It is a class without closures: a process may draw a million slots per second, and closures would cost
 * more than the draw.
 */
export class DrawnSlot implements KeyedSlot {
  readonly #encodedKey: string | undefined;
  readonly bucket: string;
  readonly key: Key | undefined;
  readonly keys: NamedKeys | undefined;
  readonly atMs: number;
  readonly waitedMs: number;
  readonly generation: number;
  readonly #group: SlotGroup;
  #lease: number;
  /** The start of the call on `performance.now()`. 0 without a lease, or if it is unknown. */
  readonly #startedMs: number;
  #outcome: CallOutcome = "done";
  #booking: Booking | undefined;
  #replacement: Slot | undefined;
  #settling: Promise<void> | undefined;
  #settled: SettledCost | undefined;

  constructor(
    { group, key, sinceMs }: DrawnFor,
    { slotUs, lease }: { readonly slotUs: number; readonly lease: number },
    { generation, nowMs, hasStarted }: Start,
  ) {
    const named = namedOf(key);
    this.#encodedKey = key;
    this.bucket = group.keeper.name;
    this.key = named.key;
    this.keys = named.keys;
    this.atMs = slotUs / 1_000;
    this.waitedMs = nowMs - sinceMs;
    this.generation = generation;
    this.#group = group;
    this.#lease = lease;
    this.#startedMs = lease > 0 && hasStarted !== true ? nowMs : 0;
  }

  /** The bucket, or the part of a bucket, that the slot was drawn from. */
  get keeper(): SlotContext {
    return this.#group.keeper;
  }

  get encodedKey(): string | undefined {
    return this.#encodedKey;
  }

  get member(): string | undefined {
    return this.#group.member?.name;
  }

  get slotUs(): number {
    return Math.round(this.atMs * 1_000);
  }

  /** The booking of the call that uses this slot. It changes if another call uses the slot. */
  get booking(): Booking {
    const { callTerms, keeper } = this.#group;
    return (this.#booking ??= {
      group: this.#group,
      slotUs: this.slotUs,
      reservedBy: callTerms.reserves ? keeper.leases.asker : undefined,
    });
  }

  set booking(booking: Booking) {
    this.#booking = booking;
  }

  /** The slot that the call drew instead of this one. The call's true cost is settled there. */
  set replacement(replacement: Slot) {
    this.#replacement = replacement;
  }

  /** The settled cost. Undefined before the call is settled. */
  get settled(): SettledCost | undefined {
    return this.#settled;
  }

  /** Returns the data with which another process can settle this slot. The slot was drawn with `cost`. */
  factsFor(cost: Cost | undefined): SlotFacts {
    const { slotUs, generation } = this;
    const { callTerms, keeper } = this.#group;
    const { asker } = keeper.leases;
    return {
      slotUs,
      generation,
      key: this.#encodedKey,
      cost,
      policy: policyDigest(callTerms),
      ...(callTerms.reserves && { reserves: true }),
      lease: this.#lease,
      asker,
      ...(this.member !== undefined && { member: this.member }),
    };
  }

  get hasLease(): boolean {
    return this.#lease > 0;
  }

  get signal(): AbortSignal {
    return this.#lease === 0 ? NEVER : this.#group.keeper.leases.signalOf(this.#lease);
  }

  /** Calls `listener` when `signal` would abort. This is cheaper than the signal. */
  onLeaseEnding(listener: (reason: unknown) => void): void {
    if (this.#lease > 0) this.#group.keeper.leases.onEnding(this.#lease, listener);
  }

  async settle(cost: SettledCost): Promise<void> {
    // An empty cost does not count as settled, because a stream has no cost before its end.
    if (isEmpty(cost)) return;
    if (this.#settling === undefined) {
      if (this.#replacement !== undefined) return this.#replacement.settle(cost);
      this.#settled = cost;
      this.#settling = this.#group.keeper.settle(this.booking, cost);
    }
    try {
      await this.#settling;
    } catch (error) {
      // Nothing was booked, so the caller may settle again with a valid cost.
      this.#settling = undefined;
      this.#settled = undefined;
      throw error;
    }
  }

  keepEstimate(): void {
    if (!this.#group.callTerms.reserves || this.#settling !== undefined) return;
    const { booking } = this;
    if (booking.reservedBy === undefined) return;
    this.#group.keeper.keepEstimate(booking);
    this.booking = { ...booking, reservedBy: undefined };
  }

  /** Settles a slot that other processes may also settle. Returns the state that the slot had before. */
  async settleGiven(cost: SettledCost, slot: GivenSlot): Promise<SlotNoted> {
    const { keeper } = this.#group;
    // An empty cost books nothing, so this only reads the state.
    if (isEmpty(cost)) return keeper.noteSlot({ ...slot, what: "look" });
    return keeper.settleGiven(this.booking, cost, slot);
  }

  /**
   * Renews the lease of a slot that another process drew, and keeps renewing it. Resolves to false if the lease has
   * expired.
   */
  async takeOver(): Promise<boolean> {
    return this.#lease === 0 || this.#group.keeper.leases.takeOver(this.#lease, this.#group);
  }

  noteOutcome(resultOrError: unknown): void {
    if (this.#lease > 0 && this.#group.callTerms.adapts)
      this.#outcome = callOutcomeOf(resultOrError);
  }

  release(options?: ReleaseOptions): void {
    const { outcome } = options === undefined ? {} : readOptions("release()", RELEASE, options);
    if (this.#lease === 0) return;
    const latencyUs = this.#latencyUs(outcome ?? this.#outcome);
    this.#group.keeper.leases.release(this.#lease, this.#group, latencyUs);
    this.#lease = 0;
  }

  /** Returns the latency as in `LeasesRequest`. */
  #latencyUs(outcome: CallOutcome): number {
    if (!this.#group.callTerms.adapts || outcome === "ignored") return 0;
    if (outcome === "dropped") return -1;
    if (this.#startedMs === 0) return 0;
    return Math.max(1, Math.round((performance.now() - this.#startedMs) * 1_000));
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

/** Makes the public methods of slots reject surplus arguments. */
export function assertSlotArguments(slots: Slot): void {
  assertArgumentCount(slots, { throws: ["release"], only: ["settle", "release"] });
}

assertSlotArguments(DrawnSlot.prototype);

/** Settles calls: replaces their estimated costs with the true ones. */
interface Settling {
  readonly settle: SlotContext["settle"];
  readonly settleGiven: SlotContext["settleGiven"];
  readonly noteSlot: SlotContext["noteSlot"];
  readonly giveBack: SlotContext["giveBack"];
  readonly keepEstimate: SlotContext["keepEstimate"];
  /** Settles the cost that `read` returns for a call's result. */
  readonly settleByResult: (read: SettleBy<unknown>, result: unknown, slot: KeyedSlot) => void;
  /** Resolves when the store has replied to all settlements that were sent so far. Never rejects. */
  answered(): Promise<void>;
  /**
   * Resolves when all results have been read and settled. Waits at most a second, because a result may be an endless
   * stream.
   */
  settled(): Promise<void>;
}

/** The callbacks for a call that cost less than estimated. Calls of its key, or of all keys, may then start earlier. */
interface OnLess {
  /** Called when the difference was sent. All later requests see it. */
  readonly sent: () => void;
  /** Called when the difference is booked. All earlier requests have their replies by then. */
  readonly booked: (key: string | undefined) => void;
}

/** Returns what a call has reserved under budgets. Undefined if it has reserved nothing. */
function reservedOf({ group, reservedBy: asker }: Booking): SettleRequest["reserved"] {
  return asker === undefined ? undefined : { asker, amounts: budgetCostsOf(group.callTerms) };
}

const READING_MS = 1_000;

export function createSettling(
  { store, bucket, known, logger }: BucketContext,
  onLess: OnLess,
): Settling {
  const underWay = new Set<Promise<void>>();
  const sentToStore = new Set<Promise<void>>();

  function track(sending: Promise<void>): void {
    const tracked = sending.finally(() => underWay.delete(tracked));
    underWay.add(tracked);
  }

  /** Returns the request for a change. Undefined if there is nothing to book. */
  function requestOf(change: CostChange): SettleRequest | undefined {
    const { group, deltas, shadowDeltas = [], slotUs, isUnused, reserved } = change;
    const { scopes, callTerms } = group;
    // Under a newer policy, only budgets are settled: the other numbers belong to the limits of the old policy.
    const terms = settlingTerms(known, callTerms);
    if (terms === undefined) return undefined;
    const isInShadow = terms === known.terms && shadowDeltas.some((delta) => delta !== 0);
    const isNothing = reserved === undefined && deltas.every((delta) => delta === 0);
    if (!isInShadow && isNothing) return undefined;
    const ofShadows = isInShadow ? shadowDeltas : undefined;
    return { bucket, terms, scopes, deltas, slotUs, isUnused, reserved, shadowDeltas: ofShadows };
  }

  /**
   * Sends a change by calling `book`. If the change lowers a cost, calls `onLess` when it was sent and again when it is
   * booked.
   */
  async function sendChange(
    { group, deltas }: CostChange,
    book: () => Promise<boolean>,
  ): Promise<void> {
    const isLess = deltas.some((delta) => delta < 0);
    const booking = book();
    if (isLess) onLess.sent();
    if (!(await booking) || !isLess) return;
    const { scopes, callTerms } = group;
    const { shared } = callTerms;
    const isLessOf = (after: number, count: number): boolean =>
      deltas.slice(after, after + count).some((delta) => delta < 0);
    if (isLessOf(0, shared.length)) return onLess.booked(undefined);
    let after = shared.length;
    for (const { key, limits } of scopes) {
      if (isLessOf(after, limits.length)) onLess.booked(key);
      after += limits.length;
    }
  }

  function send(change: CostChange): Promise<void> {
    const sending = sendOne(change).finally(() => sentToStore.delete(sending));
    sentToStore.add(sending);
    return sending;
  }

  async function sendOne(change: CostChange): Promise<void> {
    const request = requestOf(change);
    if (request === undefined) return;
    try {
      await sendChange(change, async () => {
        await store.settle(request);
        return true;
      });
    } catch (error) {
      logger.warn(
        { bucket, reason: reasonOf(error) },
        "Could not settle a cost; the estimate stays.",
      );
    }
  }

  /** @throws {@link InvalidOptionError} when the settled cost is not a valid cost of the call. */
  function costChangeOf(booking: Booking, cost: SettledCost): CostChange {
    const { slotUs, group } = booking;
    const { limits, costs, shadowCosts = [], text } = group.callTerms;
    const deltas = differences(limits, costs, cost);
    const shadows = text === known.terms.text ? (known.terms.shadows ?? []) : [];
    const shadowDeltas = shadowDifferences(shadows, shadowCosts, cost);
    assertCounted(bucket, known, { where: "settle()", path: "", byUnit: cost, isKeyed: true });
    return { group, deltas, shadowDeltas, slotUs, reserved: reservedOf(booking) };
  }

  return {
    async settle(booking, cost) {
      const change = costChangeOf(booking, cost);
      const { later } = booking;
      if (later === undefined) return send(change);
      const { group, deltas, shadowDeltas, slotUs } = change;
      // Books extra cost at the later slot. A surplus is first returned at the later slot, and what remains of it at
      // the first slot.
      const ofLater = deltas.map((delta, index) => Math.max(delta, -later.costs[index]!));
      const rest = deltas.map((delta, index) => delta - ofLater[index]!);
      await Promise.all([
        send({ group, deltas: ofLater, slotUs: later.slotUs }),
        send({ group, deltas: rest, shadowDeltas, slotUs }),
      ]);
    },
    async settleGiven(booking, cost, slot) {
      const change = costChangeOf(booking, cost);
      const request = requestOf(change);
      const note = { ...slot, bucket, what: "settle" } as const;
      if (request === undefined) return store.noteSlot(note);
      let noted: SlotNoted | undefined;
      await sendChange(change, async () => {
        noted = await store.noteSlot(note, request);
        return noted.state === "held";
      });
      return noted!;
    },
    noteSlot: (note) => store.noteSlot({ ...note, bucket }),
    giveBack: (change) => track(send(change)),
    keepEstimate(booking) {
      const { group, slotUs } = booking;
      const deltas = group.callTerms.limits.map(() => 0);
      track(send({ group, slotUs, deltas, reserved: reservedOf(booking) }));
    },
    settleByResult(read, result, slot) {
      const settling = (async () => {
        const cost = await read(result);
        if (cost !== undefined && cost !== null) await slot.settle(cost);
      })().finally(() => slot.keepEstimate?.());
      // Only logs errors: a successful call must not fail because its cost cannot be read.
      track(
        settling.catch((error: unknown) => {
          const problem = `settle() failed; the estimate of bucket "${bucket}" stays: ${reasonOf(error)}`;
          logger.warn({ bucket, reason: reasonOf(error) }, problem);
        }),
      );
    },
    async answered() {
      await Promise.all(sentToStore);
    },
    async settled() {
      if (underWay.size === 0) return;
      const waiting = new AbortController();
      const { signal } = waiting;
      const timeout = pause(READING_MS, undefined, { signal }).catch(() => undefined);
      await Promise.race([Promise.all(underWay), timeout]);
      waiting.abort();
    },
  };
}
