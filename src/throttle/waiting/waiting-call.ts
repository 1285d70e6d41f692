import { WaitTooLongError } from "../../core/errors.ts";
import type { Priority } from "../../core/options.ts";
import type { DrawOptions } from "../call-options.ts";
import { DrawnSlot, type DrawnFor, type Slot, type Start } from "../slot/slot.ts";
import type { Caller, Group } from "./group.ts";
import type { HeldSlot } from "./held-slots.ts";

/** How a call waits: one that is made for a job may leave its key's line for a while. */
export interface WaitOptions extends DrawOptions {
  readonly patienceMs?: number | undefined;
  /** Calls of several lanes take turns. */
  readonly lane?: string | undefined;
  /** How often its lane goes in a round of turns; 1 unless said otherwise. */
  readonly laneWeight?: number | undefined;
}

/** Why a call has left: its key's time is too far off for its patience. */
export class TooFar {
  /** In how many ms its key may be asked again. */
  readonly roomInMs: number;

  constructor(roomInMs: number) {
    this.roomInMs = roomInMs;
  }
}

/** What can be ended before its time. */
export interface Wait {
  /** Ends it for a reason of the caller's. */
  leave(reason: unknown): void;
}

/** Where waits are listed while they last: a set, or what has one of them at a time. */
export interface Waits {
  add(wait: Wait): unknown;
  delete(wait: Wait): unknown;
}

/** What a wait comes to, and where it is listed until then. */
interface Settling {
  readonly resolve: (slot: Slot) => void;
  readonly reject: (reason: unknown) => void;
  readonly waits?: Waits | undefined;
}

/** What a call needs to know of the bucket that it waits for. */
export interface CallContext {
  readonly name: string;
  /** In the order in which calls came. */
  takeNumber(): number;
  leave(call: WaitingCall): void;
  /** The limit that holds a group's calls back, as errors name it: `"100/s"`. */
  readonly limitedBy: (group: Group) => string;
  /** About how long a call of this group that comes now will wait. */
  readonly estimateMs: (group: Group) => number;
}

/**
 * One call in the line, until it gets its slot or its wait ends otherwise.
 * A class, since 100,000 of them may wait and closures would double their size.
 */
export class WaitingCall implements Caller, DrawnFor, Wait {
  readonly priority: Priority;
  readonly number: number;
  group: Group;
  previous: Caller | undefined = undefined;
  next: Caller | undefined = undefined;
  round = 0;
  readonly #context: CallContext;
  readonly options: WaitOptions;
  readonly #settling: Settling;
  /** By the process's own clock. */
  readonly sinceMs: number;
  #timer: NodeJS.Timeout | undefined;

  constructor(
    context: CallContext,
    group: Group,
    options: WaitOptions,
    settling: Settling,
    sinceMs: number = performance.now(),
  ) {
    this.#context = context;
    this.group = group;
    this.number = context.takeNumber();
    this.options = options;
    this.#settling = settling;
    settling.waits?.add(this);
    this.priority = options.priority ?? "normal";
    options.signal?.addEventListener("abort", this, { once: true });
    this.sinceMs = sinceMs;
    if (options.maxWaitMs !== undefined) {
      const leftMs = Math.ceil(sinceMs + options.maxWaitMs - performance.now());
      this.#timer = setTimeout(expire, Math.max(1, leftMs), this);
    }
  }

  get lane(): string | undefined {
    return this.options.lane;
  }

  get laneWeight(): number | undefined {
    return this.options.laneWeight;
  }

  get patienceMs(): number {
    return this.options.patienceMs ?? Infinity;
  }

  get key(): string | undefined {
    return this.options.key;
  }

  go(slot: HeldSlot, start: Start): void {
    this.#release();
    this.#settling.resolve(new DrawnSlot(this, slot, start));
  }

  fail(reason: unknown): void {
    this.#release();
    this.#settling.reject(reason);
  }

  /** The signal was aborted. */
  handleEvent(): void {
    this.leave(this.options.signal?.reason);
  }

  leave(reason: unknown): void {
    this.#context.leave(this);
    this.fail(reason);
  }

  expire(): void {
    const { name, limitedBy, estimateMs } = this.#context;
    const facts = {
      bucket: name,
      key: this.options.key,
      maxWaitMs: this.options.maxWaitMs!,
      retryAfterMs: estimateMs(this.group),
      limitedBy: limitedBy(this.group),
    };
    this.#context.leave(this);
    this.fail(new WaitTooLongError(facts));
  }

  #release(): void {
    clearTimeout(this.#timer);
    this.options.signal?.removeEventListener("abort", this);
    this.#settling.waits?.delete(this);
  }
}

/** One function for all timers: none has to hold a closure. */
function expire(call: WaitingCall): void {
  call.expire();
}
