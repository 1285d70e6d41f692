/** What a bucket tells of its calls, in this process. Nothing is put together while nobody listens. */
import { isThenable, reasonOf } from "../../core/describe.ts";
import { ClosedError, isRefusal, type SluiceError } from "../../core/errors.ts";
import { createEmitter, type Emitter } from "../../core/events/events.ts";
import { namedOf, type Key, type NamedKeys } from "../../core/key-path.ts";
import type { Logger } from "../../core/logger.ts";
import type { Priority } from "../../core/input/options.ts";
import type { Change } from "../../core/store.ts";
import type { ObservedDrawCall, SlotEvent, TryCall } from "../call-options.ts";
import type { DownstreamChange } from "../outage/breaker.ts";
import type { Slot } from "../slot/slot.ts";
import { nameBinding, type TryDecision } from "../try/decision.ts";
import type { Group } from "../waiting/group.ts";

/** Whom an event is about. */
interface OfKey {
  readonly key: Key | undefined;
  /** The keys of a call that has several side by side. */
  readonly keys: NamedKeys | undefined;
}

/** A call was not let through. */
export interface RefusedEvent extends OfKey {
  readonly priority: Priority;
  /** What the call was rejected with; undefined of a `tryDraw`, which answers. */
  readonly error: SluiceError | undefined;
  /** In how many ms the same call is likely to pass: `250`. Undefined if that is not known, or never. */
  readonly retryAfterMs: number | undefined;
  /** What refused it: `"100/s"`, `"a cooldown"`. Undefined if no limit did. */
  readonly limitedBy: string | undefined;
}

/** The downstream refused a call of this process, and the bucket or the key cools down for all replicas. */
export interface CooldownEvent {
  /** The key that cools down, or the head of a path; undefined is the whole bucket, unless there are `keys`. */
  readonly key: Key | undefined;
  readonly keys: NamedKeys | undefined;
  /** For how long: `30000`. */
  readonly forMs: number;
}

/** An answer of the downstream has slowed the bucket or the key down for all replicas, by `adaptive` or `pace`. */
export interface SlowedEvent extends OfKey {
  /** The part of the rate that a cut leaves: `0.7`. Undefined where calls keep a distance instead. */
  readonly factor: number | undefined;
  /** The distance that calls keep, in ms: `40`. Undefined of a cut. */
  readonly gapMs: number | undefined;
  /** For how long calls keep the distance, in ms; or start not at all, after a cut. */
  readonly forMs: number;
}

/** A replica, this one or another, has changed the policy, or has begun or ended a cooldown or pause. */
export interface ChangeEvent {
  /** The key that it is about, or the head of a path; undefined is the whole bucket, unless there are `keys`. */
  readonly key: Key | undefined;
  readonly keys: NamedKeys | undefined;
}

/** This process has found the downstream away, by failures in a row, or again by a job or a call that tried. */
export interface AwayEvent extends OfKey {
  /** How long nothing starts, until the next one tries: `2000`. */
  readonly forMs: number;
  /** By what: `"TypeError: fetch failed (connect ECONNREFUSED 10.0.0.7:443)"`. */
  readonly reason: string;
}

/** The downstream that this process had found away answers again. */
export type BackEvent = OfKey;

/** The events of a bucket, by name. */
export interface BucketEvents {
  readonly slot: SlotEvent;
  readonly refused: RefusedEvent;
  readonly cooldown: CooldownEvent;
  readonly slowed: SlowedEvent;
  readonly away: AwayEvent;
  readonly back: BackEvent;
  readonly change: ChangeEvent;
}

const EVENT_NAMES: readonly (keyof BucketEvents)[] = [
  "slot",
  "refused",
  "cooldown",
  "slowed",
  "away",
  "back",
  "change",
];

/** Tells listeners what happens; each of these does nothing but look while there are none. */
export interface BucketEmitter extends Emitter<BucketEvents> {
  /** A call got its slot; `group` is that of a call that waited. Tells its own `onSlot` too. */
  readonly slotCame: (options: ObservedDrawCall, slot: Slot, group?: Group) => void;
  /** Whether a draw or try is to be watched; if not, that makes no closure for each call. */
  hasListener(name: "refused" | "slot"): boolean;
  /** What a draw comes to; tells of its refusal. */
  watchDraw(options: ObservedDrawCall, draw: () => Promise<Slot>): Promise<Slot>;
  /** What a try comes to; tells of its slot or refusal. */
  watchTry(options: TryCall, tryDraw: () => Promise<TryDecision>): Promise<TryDecision>;
  /** An answer has changed the bucket in the store. */
  answered(key: string | undefined, change: Change): void;
  cooled(key: string | undefined, forMs: number): void;
  /** The breaker has found something of the downstream of the bucket, or of one key. */
  away(key: string | undefined, change: DownstreamChange): void;
  changed(key: string | undefined): void;
}

export function createBucketEmitter(name: string, given: Logger): BucketEmitter {
  // What fails with each call is not logged with each: of a bucket's logger, warnings are sampled.
  const warn: Logger["warn"] = (facts, message) => given.warn(facts, message);
  const logger: Logger = { warn, error: warn };
  const emitter = createEmitter<BucketEvents>(`bucket "${name}"`, EVENT_NAMES, logger);

  function cooled(key: string | undefined, forMs: number): void {
    if (emitter.hasListener("cooldown")) emitter.emit("cooldown", { ...namedOf(key), forMs });
  }

  function tellOwn(tell: NonNullable<ObservedDrawCall["onSlot"]>, event: SlotEvent): void {
    const report = (error: unknown): void => {
      const reason = reasonOf(error);
      logger.warn({ bucket: name, reason }, `onSlot of bucket "${name}" failed: ${reason}`);
    };
    try {
      const result = tell(event);
      if (isThenable(result)) result.then(undefined, report);
    } catch (error) {
      report(error);
    }
  }

  function tellRefused({ key, priority = "normal" }: ObservedDrawCall, error: unknown): void {
    if (!isRefusal(error)) return;
    const { retryAfterMs, limitedBy } = error as Partial<RefusedEvent>;
    emitter.emit("refused", { ...namedOf(key), priority, error, retryAfterMs, limitedBy });
  }

  return {
    on: (event, listener, options) => emitter.on(event, listener, options),
    off: (event, listener) => emitter.off(event, listener),
    slotCame(options, slot, group) {
      const { onSlot, trace } = options;
      const isHeard = emitter.hasListener("slot");
      if (onSlot === undefined && !isHeard && trace === undefined) return;
      const event = slotEventOf(options, slot, group);
      trace?.ended({ bucket: name, ...event });
      if (isHeard) emitter.emit("slot", event);
      if (onSlot !== undefined) tellOwn(onSlot, event);
    },
    hasListener: (event) => emitter.hasListener(event),
    async watchDraw(options, draw) {
      try {
        return await draw();
      } catch (error) {
        tellRefused(options, error);
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
        tellRefused(options, error);
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
    away(key, { isBack, forMs, reason = "" }) {
      if (isBack && emitter.hasListener("back")) emitter.emit("back", namedOf(key));
      if (isBack || !emitter.hasListener("away")) return;
      emitter.emit("away", { ...namedOf(key), forMs, reason });
    },
    changed(key) {
      if (emitter.hasListener("change")) emitter.emit("change", { ...namedOf(key) });
    },
  };
}

/** A call that went within a millisecond waited for no limit. */
const AT_ONCE_MS = 1;

function slotEventOf(
  { key, priority = "normal" }: ObservedDrawCall,
  { waitedMs, atMs }: Slot,
  group: Group | undefined,
): SlotEvent {
  const limitedBy = group === undefined || waitedMs < AT_ONCE_MS ? undefined : limitOf(group);
  return { priority, waitedMs, atMs, limitedBy, ...namedOf(key) };
}

/** What held these calls back last; all of their limits where the last answer let them pass. */
function limitOf({ bindsAt, callTerms }: Group): string {
  const binding = nameBinding(bindsAt, callTerms);
  if (binding !== undefined) return binding;
  return callTerms.limits.map((_, index) => nameBinding(index + 1, callTerms)).join(" + ");
}

/** Those who wait in a bucket outside its line, and fail when it is closed. */
interface CloseListeners {
  readonly isClosed: boolean;
  /** Calls back when the bucket is closed, at once if it is; returns a function that removes the listener. */
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
