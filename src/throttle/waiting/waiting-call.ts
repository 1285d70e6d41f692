import { isRefusal, WaitTooLongError } from "../../core/errors.ts";
import { RANKS, type Priority } from "../../core/input/options.ts";
import type { CountSlots } from "../../core/events/observer.ts";
import type { ObservedDrawCall, TryCall } from "../call-options.ts";
import { DrawnSlot, type DrawnFor, type Slot, type Start } from "../slot/slot.ts";
import type { Caller, Group } from "./group.ts";
import type { HeldSlot } from "../slot/held-slots.ts";
import { Wait, type WaitHandlers, type WaitRegistry } from "./wait.ts";

/** How a call waits; the call of a job may leave its key's line for a while. */
export interface WaitOptions extends ObservedDrawCall {
  /** If its key's time is farther off than this, in ms, the call leaves; Infinity unless given. */
  readonly patienceMs?: number | undefined;
  /** Calls of several lanes take turns: the text of a key, of which a path takes those of its first name. */
  readonly lane?: string | undefined;
  /** How often each head of its lane goes in a round of turns, the widest first; 1 unless given. */
  readonly laneWeights?: readonly number[] | undefined;
  /** What was drawn for the call before, as its job started: it waits for what it needs beyond that. */
  readonly beyond?: TryCall | undefined;
  /** Of the call of a job, what its producer was part of. */
  readonly producer?: string | undefined;
}

/** Why a call has left: its key's time is too far off for its patience. */
export class NoRoomYet {
  /** In how many ms its key may be asked about again. */
  readonly roomInMs: number;
  /** What has no room: its key, or a head of that. */
  readonly of: string | undefined;

  constructor(roomInMs: number, { heldBy }: Pick<Group, "heldBy">) {
    this.roomInMs = roomInMs;
    this.of = heldBy;
  }
}

/** Where a call's slot goes, or its failure; and where its wait is listed until then. */
interface Settling {
  readonly resolve: (slot: DrawnSlot) => void;
  readonly reject: (reason: unknown) => void;
  readonly waits?: WaitRegistry | undefined;
}

/** What a call needs of the bucket that it waits for. */
export interface CallContext {
  readonly name: string;
  /** Numbers calls in the order in which they come. */
  takeNumber(): number;
  /** The place in line of a call that comes at this time, of `performance.now()`: see `createArrivals`. */
  readonly queuedAtMs: (rank: number, nowMs: number, stepMs: number) => number;
  leave(call: WaitingCall): void;
  readonly count: CountSlots;
  /** Called with the slot of each call, before the call goes. */
  readonly onSlot?: ((options: WaitOptions, slot: Slot, group: Group) => void) | undefined;
  /**
   * What holds a group's calls back, as errors name it: `"100/s"`, and about how long a call of this group that comes now
   * will wait; the call that asks may be in the line itself.
   */
  readonly estimate: (
    group: Group,
    asker: Pick<WaitingCall, "priority"> & { readonly isInLine: boolean },
  ) => { readonly limitedBy: string; readonly retryAfterMs: number };
}

/**
 * One call in the line, until it gets its slot or its wait ends in another way.
 * A class, since 100,000 of them may wait and closures would double their size.
 */
export class WaitingCall implements Caller, DrawnFor, WaitHandlers {
  readonly priority: Priority;
  readonly number: number;
  group: Group;
  previous: Caller | undefined = undefined;
  next: Caller | undefined = undefined;
  round = 0;
  turns: Caller["turns"] = undefined;
  turnsWithin: Caller["turnsWithin"] = undefined;
  waitsAs: Priority | undefined = undefined;
  readonly #context: CallContext;
  readonly options: WaitOptions;
  readonly #settling: Settling;
  /** Since when it waits, on `performance.now()`. */
  readonly sinceMs: number;
  queuedMs: number;
  /** Undefined if nothing can end it before its time. */
  readonly #wait: Wait | undefined;

  constructor(
    context: CallContext,
    group: Group,
    options: WaitOptions,
    settling: Settling,
    sinceMs?: number,
  ) {
    this.#context = context;
    this.group = group;
    // It came as a job, before all who wait now.
    this.number = options.beyond === undefined ? context.takeNumber() : 0;
    this.options = options;
    this.#settling = settling;
    this.priority = options.priority ?? "normal";
    this.sinceMs = sinceMs ?? performance.now();
    // The call of a job that has started comes before all that wait.
    const { isUnderWay, priority } = this;
    const { sharedStepMs } = group.callTerms;
    const { sinceMs: cameMs } = this;
    this.queuedMs = isUnderWay ? 0 : context.queuedAtMs(RANKS[priority], cameMs, sharedStepMs);
    const { signal, untilMs } = options;
    const { waits } = settling;
    const isBound = signal !== undefined || untilMs !== undefined || waits !== undefined;
    if (isBound) this.#wait = new Wait(this, { signal, untilMs, waits });
  }

  get lane(): string | undefined {
    return this.options.lane;
  }

  get laneWeights(): readonly number[] | undefined {
    return this.options.laneWeights;
  }

  get patienceMs(): number {
    return this.options.patienceMs ?? Infinity;
  }

  get untilMs(): number {
    return this.options.untilMs ?? Infinity;
  }

  get isUnderWay(): boolean {
    return this.options.beyond !== undefined;
  }

  get key(): string | undefined {
    return this.options.key;
  }

  go(slot: HeldSlot, start: Start): void {
    this.#wait?.end();
    const drawn = new DrawnSlot(this, slot, start);
    this.#context.onSlot?.(this.options, drawn, this.group);
    this.#settling.resolve(drawn);
  }

  fail(reason: unknown): void {
    this.#wait?.end();
    this.#reject(reason);
  }

  onLeave(reason: unknown): void {
    this.#context.leave(this);
    this.#reject(reason);
  }

  onExpire(): void {
    this.onLeave(this.#waitTooLong(true));
  }

  refuse(): void {
    this.fail(this.#waitTooLong(false));
  }

  #reject(reason: unknown): void {
    if (isRefusal(reason)) {
      this.#context.count("refused", 1);
      const waitedMs = performance.now() - this.sinceMs;
      this.options.trace?.refused(this.#context.name, waitedMs, reason);
    }
    this.#settling.reject(reason);
  }

  #waitTooLong(isInLine: boolean): WaitTooLongError {
    const { name, estimate } = this.#context;
    const { key, maxWaitMs } = this.options;
    const { priority, group } = this;
    const facts = { bucket: name, key, maxWaitMs: maxWaitMs!, isHopeless: !isInLine };
    return new WaitTooLongError({ ...facts, ...estimate(group, { priority, isInLine }) });
  }
}

/** Calls that arrive together are in line this far apart, and none is put off by more than this … */
const APART_MS = 1;
const MOST_APART_MS = 200;
/** … unless one call takes longer than that: then they are as far apart as one call takes, up to two of them. */
const MOST_APART_STEPS = 2;
const LONGEST_APART_MS = 1_000;

/**
 * Returns a function that gives each call of a process its place in the line of all replicas: the time of its arrival.
 * Of calls that arrive together, each is a little behind the one before. Otherwise a process that brings hundreds of calls
 * at once would be served as a block. At a slow rate they are one call's time apart (`stepMs`, by the limits that all keys
 * share), so that processes with several calls take turns.
 */
export function createArrivals(): (rank: number, nowMs: number, stepMs: number) => number {
  const lastMs: number[] = [];
  return (rank, nowMs, stepMs) => {
    const isSlow = stepMs >= MOST_APART_MS;
    const mostMs = isSlow ? Math.min(LONGEST_APART_MS, MOST_APART_STEPS * stepMs) : MOST_APART_MS;
    const behindMs = (lastMs[rank] ?? -Infinity) + (isSlow ? stepMs : APART_MS);
    const atMs = Math.min(Math.max(nowMs, behindMs), nowMs + mostMs);
    // A call that came earlier, and for which a policy was looked up meanwhile, does not put the next one back.
    lastMs[rank] = Math.max(lastMs[rank] ?? -Infinity, atMs);
    return atMs;
  };
}
