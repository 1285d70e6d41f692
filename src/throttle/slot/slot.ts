import { createHash } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";
import { reasonOf } from "../../core/describe.ts";
import { assertArgumentCount } from "../../core/input/arguments.ts";
import { namedOf, textOfNamed, type Key, type NamedKeys } from "../../core/key-path.ts";
import type { SettleRequest } from "../../core/store.ts";
import type { GivenSlot, SlotNote, SlotNoted } from "../../core/stores/insight/slots.ts";
import type { SettledCost, SettleBy } from "../call-options.ts";
import { isByUnit, type Cost, differences, shadowDifferences } from "../costs.ts";
import { assertCounted, type BucketContext } from "../known-policy.ts";
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
interface Booking {
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
interface Unneeded {
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

/** Books what calls truly cost, in place of what they were estimated to cost. */
interface Settling {
  readonly settle: SlotContext["settle"];
  readonly settleGiven: SlotContext["settleGiven"];
  readonly noteSlot: SlotContext["noteSlot"];
  readonly giveBack: SlotContext["giveBack"];
  /** Settles the cost that `read` finds in a call's result. */
  readonly settleByResult: (read: SettleBy<unknown>, result: unknown, slot: Slot) => void;
  /** Resolves when all results have been read and settled, or after a second: a result may be a stream without end. */
  settled(): Promise<void>;
}

/** Called when a call cost less than estimated: calls of its key, or of all, may pass that were refused. */
interface OnLess {
  /** The difference was sent: whatever is asked from now on is answered with it in mind. */
  readonly sent: () => void;
  /** It is booked: what was asked before has been answered by now. */
  readonly booked: (key: string | undefined) => void;
}

const READING_MS = 1_000;

export function createSettling(
  { store, bucket, known, logger }: BucketContext,
  onLess: OnLess,
): Settling {
  const underWay = new Set<Promise<void>>();

  function track(sending: Promise<void>): void {
    const tracked = sending.finally(() => underWay.delete(tracked));
    underWay.add(tracked);
  }

  /** Undefined if there is nothing to book. */
  function requestOf(unneeded: Unneeded): SettleRequest | undefined {
    const { group, deltas, shadowDeltas = [], slotUs, isUnused } = unneeded;
    const { scopes, callTerms } = group;
    const { terms } = known;
    // Another policy is in force by now: it has other limits than those that these numbers are for.
    if (callTerms.text !== terms.text) return undefined;
    const isInShadow = shadowDeltas.some((delta) => delta !== 0);
    if (!isInShadow && deltas.every((delta) => delta === 0)) return undefined;
    const ofShadows = isInShadow ? shadowDeltas : undefined;
    return { bucket, terms, scopes, deltas, slotUs, isUnused, shadowDeltas: ofShadows };
  }

  /** Reports what was taken back, when it is sent and when `ask` has booked it. */
  async function telling({ group, deltas }: Unneeded, ask: () => Promise<boolean>): Promise<void> {
    const isLess = deltas.some((delta) => delta < 0);
    const asking = ask();
    if (isLess) onLess.sent();
    if (!(await asking) || !isLess) return;
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

  async function send(unneeded: Unneeded): Promise<void> {
    const request = requestOf(unneeded);
    if (request === undefined) return;
    try {
      await telling(unneeded, async () => {
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

  /** @throws {@link InvalidOptionError} when it can be no cost of the call. */
  function unneededOf({ slotUs, group }: Booking, cost: SettledCost): Unneeded {
    const { limits, costs, shadowCosts = [], text } = group.callTerms;
    const deltas = differences(limits, costs, cost);
    const shadows = text === known.terms.text ? (known.terms.shadows ?? []) : [];
    const shadowDeltas = shadowDifferences(shadows, shadowCosts, cost);
    assertCounted(bucket, known, { where: "settle()", path: "", byUnit: cost, isKeyed: true });
    return { group, deltas, shadowDeltas, slotUs };
  }

  return {
    async settle(booking, cost) {
      const unneeded = unneededOf(booking, cost);
      const { later } = booking;
      if (later === undefined) return send(unneeded);
      const { group, deltas, shadowDeltas, slotUs } = unneeded;
      // What the call lacked is booked with what was booked last; what it had too much is taken from there first.
      const ofLater = deltas.map((delta, index) => Math.max(delta, -later.costs[index]!));
      const rest = deltas.map((delta, index) => delta - ofLater[index]!);
      await Promise.all([
        send({ group, deltas: ofLater, slotUs: later.slotUs }),
        send({ group, deltas: rest, shadowDeltas, slotUs }),
      ]);
    },
    async settleGiven(booking, cost, slot) {
      const unneeded = unneededOf(booking, cost);
      const request = requestOf(unneeded);
      const note = { ...slot, bucket, what: "settle" } as const;
      if (request === undefined) return store.noteSlot(note);
      let noted: SlotNoted | undefined;
      await telling(unneeded, async () => {
        noted = await store.noteSlot(note, request);
        return noted.state === "held";
      });
      return noted!;
    },
    noteSlot: (note) => store.noteSlot({ ...note, bucket }),
    giveBack: (unneeded) => track(send(unneeded)),
    settleByResult(read, result, slot) {
      const settling = (async () => {
        const cost = await read(result);
        if (cost !== undefined && cost !== null) await slot.settle(cost);
      })();
      // The call went well: it must not fail because its cost could not be read.
      track(
        settling.catch((error: unknown) => {
          const problem = `settle() failed; the estimate of bucket "${bucket}" stays: ${reasonOf(error)}`;
          logger.warn({ bucket, reason: reasonOf(error) }, problem);
        }),
      );
    },
    async settled() {
      if (underWay.size === 0) return;
      const waiting = new AbortController();
      const { signal } = waiting;
      const patience = pause(READING_MS, undefined, { signal }).catch(() => undefined);
      await Promise.race([Promise.all(underWay), patience]);
      waiting.abort();
    },
  };
}
