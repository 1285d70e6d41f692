import { BudgetSpentError, isRefusal, WaitTooLongError } from "../../core/errors.ts";
import { unitsIn } from "../../core/limits/budget.ts";
import { formatLimit } from "../../core/limits/registry.ts";
import type { Granted } from "../../core/store.ts";
import { RANKS, type Priority } from "../../core/input/options.ts";
import type { CountSlots } from "../../core/events/observer.ts";
import type { ObservedDrawCall, TryCall } from "../call-options.ts";
import { DrawnSlot, type DrawnFor, type Slot, type Start } from "../slot/slot.ts";
import type { Caller, Group } from "./group.ts";
import type { HeldSlot } from "../slot/held-slots.ts";
import { Wait, type WaitHandlers, type WaitRegistry } from "./wait.ts";

/** The options of a waiting call. The call of a job may return to its lane instead of waiting. */
export interface WaitOptions extends ObservedDrawCall {
  /**
   * How long the call waits for room in its key, in ms. If the key has room only later, the call
   * ends with {@link NoRoomYet}. Defaults to Infinity.
   */
  readonly patienceMs?: number | undefined;
  /**
   * The encoded key of the call's lane. Lanes take turns. Lanes with the same first name share the
   * turns of that name.
   */
  readonly lane?: string | undefined;
  /**
   * The weights of the lane's parent keys and of the lane itself, the widest first. A weight is the
   * number of turns per round. Each weight defaults to 1.
   */
  readonly laneWeights?: readonly number[] | undefined;
  /** The slot that the call's job has already drawn. The call waits only for the cost that exceeds it. */
  readonly beyond?: TryCall | undefined;
  /** True if the call waits when a budget is spent, because it belongs to a job. Other calls are rejected. */
  readonly waitsForBudgets?: boolean | undefined;
  /** The trace context of the process that added the call's job. */
  readonly producer?: string | undefined;
}

/** The result of a call whose key has no room within `patienceMs`. */
export class NoRoomYet {
  /** Ms until the call's key may have room. */
  readonly roomInMs: number;
  /** The key without room: the call's key, or a parent of that key. */
  readonly of: string | undefined;

  constructor(roomInMs: number, { heldBy }: Pick<Group, "heldBy">) {
    this.roomInMs = roomInMs;
    this.of = heldBy;
  }
}

/** Receives the call's slot or its error. `waits` lists the wait until then. */
interface Settling {
  readonly resolve: (slot: DrawnSlot) => void;
  readonly reject: (reason: unknown) => void;
  readonly waits?: WaitRegistry | undefined;
}

/** The bucket's functions that a waiting call uses. */
export interface CallContext {
  readonly name: string;
  /** Returns the number of the next call. Calls are numbered in the order of their arrival. */
  takeNumber(): number;
  /**
   * Returns the queue position of a call that arrives at `nowMs`, on `performance.now()`. See
   * `createArrivals`.
   */
  readonly queuedAtMs: (rank: number, nowMs: number, stepMs: number) => number;
  leave(call: WaitingCall): void;
  readonly count: CountSlots;
  /** Called with each slot, before the call resolves. */
  readonly onSlot?: ((options: WaitOptions, slot: Slot, group: Group) => void) | undefined;
  /**
   * Returns details for error messages: the limit that delays a group's calls, such as `"100/s"`,
   * and the estimated wait of a call that arrives now. The `asker` may itself be one of the waiting
   * calls.
   */
  readonly estimate: (
    group: Group,
    asker: Pick<WaitingCall, "priority"> & { readonly isInLine: boolean },
  ) => { readonly limitedBy: string; readonly retryAfterMs: number };
}

/**
 * One pending call. This is a class to save memory: 100,000 calls may be pending, and closures
 * would double their size.
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
  inheritedPriority: Priority | undefined = undefined;
  readonly #context: CallContext;
  readonly options: WaitOptions;
  readonly #settling: Settling;
  /** When the wait began, on `performance.now()`. */
  readonly sinceMs: number;
  queuedMs: number;
  /** The wait that can end the call early. Undefined if nothing can end it early. */
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
    // A call of a running job gets the number 0, because its job arrived before all calls that wait
    // now.
    this.number = options.beyond === undefined ? context.takeNumber() : 0;
    this.options = options;
    this.#settling = settling;
    this.priority = options.priority ?? "normal";
    this.sinceMs = sinceMs ?? performance.now();
    // A started job already holds a lease, so its call goes before all waiting calls.
    const { isOfStartedJob, priority } = this;
    const { sharedStepMs } = group.callTerms;
    const { sinceMs: cameMs } = this;
    this.queuedMs = isOfStartedJob ? 0 : context.queuedAtMs(RANKS[priority], cameMs, sharedStepMs);
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

  get waitsForBudgets(): boolean {
    return this.options.waitsForBudgets === true;
  }

  get isOfStartedJob(): boolean {
    return this.options.beyond !== undefined;
  }

  get key(): string | undefined {
    return this.options.key;
  }

  resolveWith(slot: HeldSlot, start: Start): void {
    this.#wait?.end();
    const drawn = new DrawnSlot(
      this.group.pool === undefined ? this : this.#atMember(slot),
      slot,
      start,
    );
    this.#context.onSlot?.(this.options, drawn, this.group);
    this.#settling.resolve(drawn);
  }

  /** The same call under the limits of the member that its slot is for. */
  #atMember(slot: HeldSlot): DrawnFor {
    return { group: this.group.of(slot), key: this.key, sinceMs: this.sinceMs };
  }

  fail(reason: unknown): void {
    this.#wait?.end();
    this.#reject(reason);
  }

  onCancel(reason: unknown): void {
    this.#context.leave(this);
    this.#reject(reason);
  }

  onExpire(): void {
    this.onCancel(this.#waitTooLong(true));
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

/**
 * Returns the error for a call that does not fit into a budget. Returns undefined if the call waits
 * for the next period.
 */
export function spentError(
  bucket: string,
  { caller, granted, nowUs }: { caller: Caller; granted: Granted; nowUs: number },
): BudgetSpentError | undefined {
  const { bindsAt, soonestUs, spent } = granted;
  const { limits, costs, whose } = caller.group.callTerms;
  const limit = limits[bindsAt - 1]!;
  if (caller.waitsForBudgets || limit.budget?.onSpent !== "refuse") return undefined;
  const { scope, level, suffix } = whose[bindsAt - 1]!;
  return new BudgetSpentError({
    bucket,
    key: caller.key,
    limitedBy: formatLimit(limit) + suffix,
    scope,
    level,
    unit: limit.unit,
    cost: unitsIn(limit, costs[bindsAt - 1]!),
    amount: unitsIn(limit, spent!.total),
    spent: unitsIn(limit, spent!.spent),
    resetsAt: new Date(Math.ceil(spent!.endUs / 1_000)),
    retryAfterMs: Math.ceil((Math.max(spent!.endUs, soonestUs) - nowUs) / 1_000),
    refusalStatus: limit.budget.httpStatus,
  });
}

/**
 * The time between the queue positions of calls that arrive together, and the maximum delay of one
 * call, in ms.
 */
const APART_MS = 1;
const MOST_APART_MS = 200;
/**
 * The maximum delay of one call in a slow bucket: in steps, and in ms. A bucket is slow if its
 * shared rate allows at most one call per {@link MOST_APART_MS}. A step is then the time of one
 * call at this rate.
 */
const MOST_APART_STEPS = 2;
const LONGEST_APART_MS = 1_000;

/**
 * Returns a function that computes a call's position in the queue of all replicas: its arrival
 * time. Calls that arrive together get slightly later times, one after the other. Otherwise a
 * process that adds hundreds of calls at once would be served as one block. At a slow rate, they
 * are `stepMs` apart, the time of one call under the limits that all keys share. Processes with
 * several calls then take turns.
 */
export function createArrivals(): (rank: number, nowMs: number, stepMs: number) => number {
  const lastMs: number[] = [];
  return (rank, nowMs, stepMs) => {
    const isSlow = stepMs >= MOST_APART_MS;
    const mostMs = isSlow ? Math.min(LONGEST_APART_MS, MOST_APART_STEPS * stepMs) : MOST_APART_MS;
    const behindMs = (lastMs[rank] ?? -Infinity) + (isSlow ? stepMs : APART_MS);
    const atMs = Math.min(Math.max(nowMs, behindMs), nowMs + mostMs);
    // A call may be delayed by a policy lookup, and then enters with its earlier arrival time. It
    // must not move the next call back.
    lastMs[rank] = Math.max(lastMs[rank] ?? -Infinity, atMs);
    return atMs;
  };
}
