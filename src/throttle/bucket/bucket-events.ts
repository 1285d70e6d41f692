/** Emits the events of a bucket's calls in this process. Event objects are only created if there is a listener. */
import { isThenable, reasonOf } from "../../core/describe.ts";
import { ClosedError, isRefusal, type SluiceError } from "../../core/errors.ts";
import { createEmitter, type Emitter } from "../../core/events/events.ts";
import { namedOf, type Key, type NamedKeys } from "../../core/key-path.ts";
import type { Logger } from "../../core/logger.ts";
import type { Priority } from "../../core/input/options.ts";
import { unitsIn } from "../../core/limits/budget.ts";
import { formatLimit } from "../../core/limits/registry.ts";
import type { Change, ClosedWindow, CrossedBudget } from "../../core/store.ts";
import type { ObservedDrawCall, SlotEvent, TryCall } from "../call-options.ts";
import type { DownstreamChange } from "../outage/breaker.ts";
import type { KeyedSlot, Slot } from "../slot/slot.ts";
import { createLru } from "../lru.ts";
import { nameBinding, type TryDecision } from "../try/decision.ts";
import type { Group } from "../waiting/group.ts";
import { describeAdaptive, type AdaptiveState } from "./bucket-state.ts";

/** The key or named keys that an event is about. */
interface OfKey {
  readonly key: Key | undefined;
  /** The named keys of the call, if the call has several keys. */
  readonly keys: NamedKeys | undefined;
  /** In a pool, the name of the member that the event is about. */
  readonly member?: string | undefined;
}

/** Reports that a call was refused. */
export interface RefusedEvent extends OfKey {
  readonly priority: Priority;
  /** The error of the call. Undefined for `tryDraw`, which returns a refusal instead of throwing. */
  readonly error: SluiceError | undefined;
  /**
   * The time until the same call is likely to pass, in ms: `250`. Undefined if the time is unknown, or if the call can
   * never pass.
   */
  readonly retryAfterMs: number | undefined;
  /** The limit or other cause of the refusal: `"100/s"`, `"a cooldown"`. Undefined if no limit caused it. */
  readonly limitedBy: string | undefined;
}

/** Reports that the downstream refused a call of this process. The bucket or key then cools down for all replicas. */
export interface CooldownEvent {
  /**
   * The key that cools down, or the start of a key path. Undefined if the whole bucket cools down, or if `keys` is set.
   */
  readonly key: Key | undefined;
  readonly keys: NamedKeys | undefined;
  /** The length of the cooldown, in ms: `30000`. */
  readonly forMs: number;
}

/**
 * Reports that a response of the downstream slowed the bucket or key down for all replicas. The option `adaptive` or
 * `pace` causes this.
 */
export interface SlowedEvent extends OfKey {
  /**
   * The fraction of the rate that a rate cut leaves: `0.7`. Undefined if the response demanded a minimum time between
   * calls.
   */
  readonly factor: number | undefined;
  /** The minimum time between two calls, in ms: `40`. Undefined for a rate cut. */
  readonly gapMs: number | undefined;
  /** How long calls stay `gapMs` apart, in ms. For a rate cut, how long no call starts at first. */
  readonly forMs: number;
}

/**
 * Reports that a budget has reached a part of its amount for the first time in a period. Over all processes, one event
 * is emitted for each part: in the process whose call reached it.
 */
export interface BudgetEvent extends OfKey {
  /** The budget: `"500/month usd"`. */
  readonly budget: string;
  readonly unit: string;
  /** The part of the amount that was reached: `0.8`. It is one of the budget's `warnAt`. */
  readonly part: number;
  /** What is spent in the period: `401.2`. Reserved amounts do not count. */
  readonly spent: number;
  /** The amount of the period, with what was carried over and granted: `500`. */
  readonly amount: number;
  /** When the next period begins. */
  readonly resetsAt: Date;
}

/** A reader of the warnings in the log of a bucket's budgets. */
export interface WarningsReader {
  /** The name under which the log knows what the reader has handled: that of a webhook sender. */
  readonly reader: string;
  /** Handles one warning. If it rejects, the reader gets this warning and all later ones again. */
  readonly handle: (warning: BudgetEvent) => Promise<void>;
}

/**
 * Reports that a concurrency limit that adapts to latency has changed. Over all processes, one event is emitted for each
 * change: in the process whose call ended the window. Each process emits at most one event per second and limit.
 */
export interface ConcurrencyEvent extends OfKey, AdaptiveState {
  /** The limit: `"1 to 1000 at once"`. */
  readonly limit: string;
}

/** Reports that any replica changed the policy, or began or ended a cooldown or pause. */
export interface ChangeEvent {
  /** The changed key, or the start of a key path. Undefined if the whole bucket changed, or if `keys` is set. */
  readonly key: Key | undefined;
  readonly keys: NamedKeys | undefined;
  /** The changed member of a pool. Undefined if the whole pool or a key changed. */
  readonly member?: string | undefined;
}

/** Reports that this process found the downstream unreachable, after several failures in a row or a failed probe. */
export interface UnreachableEvent extends OfKey {
  /** The time until the next probe, in ms: `2000`. Nothing else starts before that. */
  readonly forMs: number;
  /** The error of the failed call: `"TypeError: fetch failed (connect ECONNREFUSED 10.0.0.7:443)"`. */
  readonly reason: string;
}

/** @deprecated Use `UnreachableEvent`. */
export type AwayEvent = UnreachableEvent;

/** Reports that the downstream is reachable again. */
export type ReachableEvent = OfKey;

/** @deprecated Use `ReachableEvent`. */
export type BackEvent = ReachableEvent;

/** The type of each event of a bucket, by event name. */
export interface BucketEvents {
  readonly slot: SlotEvent;
  readonly refused: RefusedEvent;
  readonly cooldown: CooldownEvent;
  readonly slowed: SlowedEvent;
  readonly budget: BudgetEvent;
  readonly concurrency: ConcurrencyEvent;
  readonly unreachable: UnreachableEvent;
  readonly reachable: ReachableEvent;
  /** @deprecated Use `unreachable`. */
  readonly away: UnreachableEvent;
  /** @deprecated Use `reachable`. */
  readonly back: ReachableEvent;
  readonly change: ChangeEvent;
}

const EVENT_NAMES: readonly (keyof BucketEvents)[] = [
  "slot",
  "refused",
  "cooldown",
  "slowed",
  "unreachable",
  "reachable",
  "budget",
  "concurrency",
  "change",
  "away",
  "back",
];

/** Emits the events of a bucket. */
export interface BucketEmitter extends Emitter<BucketEvents> {
  /** Emits `slot`, and calls the `onSlot` option of the call. Only a call that waited has a `group`. */
  readonly slotCame: (options: ObservedDrawCall, slot: Slot, group?: Group) => void;
  /**
   * True if the event has a listener. Without one, callers skip `watchDraw` and `watchTry`, which need a closure for
   * each call.
   */
  hasListener(name: "refused" | "slot"): boolean;
  /** Runs a draw and returns its result. Emits `refused` if the draw rejects with a refusal. */
  watchDraw<Drawn>(options: ObservedDrawCall, draw: () => Promise<Drawn>): Promise<Drawn>;
  /** Runs a `tryDraw` and returns its decision. Emits `slot` or `refused`. */
  watchTry(options: TryCall, tryDraw: () => Promise<TryDecision>): Promise<TryDecision>;
  /** Emits `cooldown` or `slowed` after a response of the downstream changed the bucket. */
  answered(key: string | undefined, change: Change): void;
  cooled(key: string | undefined, forMs: number): void;
  /** Emits `unreachable` or `reachable`, and the same event under its old name. */
  downstreamChanged(key: string | undefined, change: DownstreamChange): void;
  changed(key: string | undefined): void;
  /** Emits `concurrency` for each adaptive limit that a window has changed. */
  adapted(closed: readonly ClosedWindow[]): void;
  /** Emits `budget` for each part of a budget that was reached. */
  reached(crossed: readonly CrossedBudget[]): void;
}

export function createBucketEmitter(name: string, given: Logger): BucketEmitter {
  let adapted: ReturnType<typeof createAdapted> | undefined;
  // Logs errors of listeners as warnings: a listener may fail for each call, and the logger samples only warnings.
  const warn: Logger["warn"] = (facts, message) => given.warn(facts, message);
  const logger: Logger = { warn, error: warn };
  const emitter = createEmitter<BucketEvents>(`bucket "${name}"`, EVENT_NAMES, logger);

  function cooled(key: string | undefined, forMs: number): void {
    if (emitter.hasListener("cooldown")) emitter.emit("cooldown", { ...namedOf(key), forMs });
  }

  function callOnSlot(listener: NonNullable<ObservedDrawCall["onSlot"]>, event: SlotEvent): void {
    const report = (error: unknown): void => {
      const reason = reasonOf(error);
      logger.warn({ bucket: name, reason }, `onSlot of bucket "${name}" failed: ${reason}`);
    };
    try {
      const result = listener(event);
      if (isThenable(result)) result.then(undefined, report);
    } catch (error) {
      report(error);
    }
  }

  function emitRefused({ key, priority = "normal" }: ObservedDrawCall, error: unknown): void {
    if (!isRefusal(error)) return;
    const { retryAfterMs, limitedBy } = error as Partial<RefusedEvent>;
    emitter.emit("refused", { ...namedOf(key), priority, error, retryAfterMs, limitedBy });
  }

  return {
    on: (event, listener, options) => emitter.on(event, listener, options),
    off: (event, listener) => emitter.off(event, listener),
    slotCame(options, slot, group) {
      const { onSlot, trace } = options;
      const hasListener = emitter.hasListener("slot");
      if (onSlot === undefined && !hasListener && trace === undefined) return;
      const event = slotEventOf(options, slot, group);
      trace?.ended({ bucket: name, ...event });
      if (hasListener) emitter.emit("slot", event);
      if (onSlot !== undefined) callOnSlot(onSlot, event);
    },
    hasListener: (event) => emitter.hasListener(event),
    async watchDraw(options, draw) {
      try {
        return await draw();
      } catch (error) {
        emitRefused(options, error);
        throw error;
      }
    },
    async watchTry(options, tryDraw) {
      try {
        const decision = await tryDraw();
        const { allowed, slot, retryAfterMs, limitedBy } = decision;
        if (allowed) emitter.emit("slot", slotEventOf(options, slot, undefined));
        else {
          const about = { ...namedOf(options.key), priority: "normal", error: undefined } as const;
          emitter.emit("refused", { ...about, retryAfterMs, limitedBy });
        }
        return decision;
      } catch (error) {
        emitRefused(options, error);
        throw error;
      }
    },
    cooled,
    answered(key, change) {
      if (change.do === "cool") {
        cooled(key, change.durationUs / 1_000);
      } else if (change.do === "cut" && emitter.hasListener("slowed")) {
        const forMs = change.durationUs / 1_000;
        const factor = change.factor / 1_000;
        emitter.emit("slowed", { ...namedOf(key), factor, gapMs: undefined, forMs });
      } else if (change.do === "space" && emitter.hasListener("slowed")) {
        const forMs = change.durationUs / 1_000;
        const gapMs = change.gapUs / 1_000;
        emitter.emit("slowed", { ...namedOf(key), factor: undefined, gapMs, forMs });
      }
    },
    downstreamChanged(key, { isBack, forMs, reason = "" }) {
      if (isBack) {
        const event = namedOf(key);
        for (const name of ["reachable", "back"] as const) emitter.emit(name, event);
        return;
      }
      const event = { ...namedOf(key), forMs, reason };
      for (const name of ["unreachable", "away"] as const) emitter.emit(name, event);
    },
    reached(crossed) {
      if (!emitter.hasListener("budget")) return;
      for (const each of crossed) emitter.emit("budget", budgetEventOf(each));
    },
    adapted(closed) {
      if (!emitter.hasListener("concurrency")) return;
      adapted ??= createAdapted();
      for (const { limit, key, ...window } of closed) {
        const text = formatLimit(limit);
        const of = `${key ?? ""}\n${text}`;
        const nowMs = performance.now();
        const last = adapted.get(of);
        if (last?.bound === window.bound || nowMs - (last?.atMs ?? -Infinity) < ADAPTED_EVERY_MS)
          continue;
        adapted.set(of, { bound: window.bound, atMs: nowMs });
        const state = describeAdaptive(limit, limit.adaptive!, window);
        emitter.emit("concurrency", { ...namedOf(key), limit: text, ...state });
      }
    },
    changed(key) {
      if (emitter.hasListener("change")) emitter.emit("change", { ...namedOf(key) });
    },
  };
}

export function budgetEventOf(crossed: CrossedBudget): BudgetEvent {
  const { key, limit, part, spent, total, endUs } = crossed;
  return {
    ...namedOf(key),
    budget: formatLimit(limit),
    unit: limit.unit,
    part,
    spent: unitsIn(limit, spent),
    amount: unitsIn(limit, total),
    resetsAt: new Date(Math.ceil(endUs / 1_000)),
  };
}

/** Stores the last event of each adaptive limit. */
function createAdapted() {
  return createLru<{ readonly bound: number; readonly atMs: number }>(MOST_ADAPTED);
}

/** The shortest time between two `concurrency` events of one limit, in ms, and for how many limits it is known. */
const [ADAPTED_EVERY_MS, MOST_ADAPTED] = [1_000, 1_000];

/** A slot event names no limit if the call waited for less than this. */
const SHORTEST_WAIT_MS = 1;

function slotEventOf(
  { key, priority = "normal" }: ObservedDrawCall,
  { waitedMs, atMs, member }: Slot & Pick<KeyedSlot, "member">,
  group: Group | undefined,
): SlotEvent {
  const limitedBy = group === undefined || waitedMs < SHORTEST_WAIT_MS ? undefined : limitOf(group);
  const event = { priority, waitedMs, atMs, limitedBy, ...namedOf(key) };
  return member === undefined ? event : { ...event, member };
}

/**
 * Names the latest cause that delayed the calls of this group. If the latest reply let the calls pass, names all their
 * limits.
 */
function limitOf({ bindsAt, callTerms }: Group): string {
  const binding = nameBinding(bindsAt, callTerms);
  if (binding !== undefined) return binding;
  return callTerms.limits.map((_, index) => nameBinding(index + 1, callTerms)).join(" + ");
}

/** Rejects the calls that wait outside the bucket's line when the bucket closes. */
interface CloseListeners {
  readonly isClosed: boolean;
  /**
   * Calls `fail` when the bucket closes, or immediately if it is already closed. Returns a function that removes the
   * listener.
   */
  add(fail: (reason: ClosedError) => void): () => void;
  close(): void;
}

export function createCloseListeners(bucket: string): CloseListeners {
  const listeners = new Set<(reason: ClosedError) => void>();
  let closed: ClosedError | undefined;
  return {
    get isClosed() {
      return closed !== undefined;
    },
    add(fail) {
      if (closed !== undefined) fail(closed);
      listeners.add(fail);
      return () => listeners.delete(fail);
    },
    close() {
      closed ??= new ClosedError(`Bucket "${bucket}"`);
      for (const fail of listeners) fail(closed);
    },
  };
}
