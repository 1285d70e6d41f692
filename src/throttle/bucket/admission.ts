import { ClosedError, LineFullError, WaitTooLongError } from "../../core/errors.ts";
import { isLeased } from "../../core/limits/registry.ts";
import { LONGEST_MS, type Priority } from "../../core/options.ts";
import { HORIZON_MS } from "../../core/policy/limit-makers.ts";
import { formatPolicy } from "../../core/policy/policy.ts";
import type { OwnedBucket } from "../bucket.ts";
import type { DrawOptions, TryOptions } from "../call-options.ts";
import { isByPolicy, type KnownPolicy, type RefreshPolicy } from "../known-policy.ts";
import type { Slot } from "../slot/slot.ts";
import { nameBinding, UNKNOWN_MS, type TryDecision } from "../try/decision.ts";
import type { TryDraws } from "../try/try-draw.ts";
import type { Group, Groups } from "../waiting/group.ts";
import type { Pacer } from "../waiting/pacer.ts";
import { Wait, type Waits } from "../waiting/wait.ts";
import {
  TooFar,
  WaitingCall,
  type CallContext,
  type WaitOptions,
} from "../waiting/waiting-call.ts";

/** How calls come in: into the line, or back at once. What is thrown for one is thrown before it waits. */
export interface Admission {
  /**
   * Waits for a slot.
   *
   * @throws {@link ClosedError} after `close()`.
   * @throws {@link LineFullError} when the line is full for calls of this priority.
   * @throws the signal's reason, when it is aborted already, and as {@link Groups.of} does.
   */
  draw(options: DrawOptions): Promise<Slot>;
  /** Waits as the call of a job: it is never shed, leaves when its key's time is too far off, and can be stopped by what is among `waits`. */
  readonly drawForJob: OwnedBucket["drawForJob"];
  /** @throws {@link ClosedError} after `close()`, and as {@link Groups.of} does. */
  tryDraw(options: TryOptions): Promise<TryDecision>;
  readonly check: OwnedBucket["checkDrawable"];
  /** Lets nobody in any more. */
  close(): void;
}

export interface AdmissionParts {
  readonly name: string;
  readonly maxWaiting: number;
  /** How many callers wait in this process. */
  readonly waiting: () => number;
  readonly groups: Groups;
  readonly pacer: Pacer;
  readonly tries: TryDraws;
  readonly estimates: Estimates;
  readonly refreshPolicy: RefreshPolicy;
  /** @throws {@link InvalidOptionError} when a cost names a unit that nothing counts. */
  readonly assertUnits: (where: string, options: TryOptions) => void;
  /** Called when the first call comes. */
  readonly listen: (() => void) | undefined;
}

/** How full a line may be for each priority. */
const SHED_AT: Readonly<Record<Priority, number>> = {
  critical: 1,
  high: 0.9,
  normal: 0.8,
  low: 0.7,
};

export function createAdmission(parts: AdmissionParts): Admission {
  const { name, maxWaiting, groups, pacer, tries, estimates, assertUnits } = parts;
  let calls = 0;
  let isListening = false;
  let isClosed = false;

  const entry = createEntry(name, parts.refreshPolicy, assertOpen);
  const context: CallContext = {
    ...estimates,
    name,
    takeNumber: () => (calls += 1),
    leave: (call) => pacer.leave(call),
  };

  function assertOpen(): void {
    if (isClosed) throw new ClosedError(`Bucket "${name}"`);
    if (isListening) return;
    isListening = true;
    parts.listen?.();
  }

  /** As a line fills, it is kept for those who are more urgent. */
  function shed({ priority = "normal", key }: DrawOptions, group: Group): void {
    const waiting = parts.waiting();
    const most = maxWaiting * SHED_AT[priority];
    if (waiting < most) return;
    const retryAfterMs = Math.ceil((waiting - most + 1) * group.callTerms.stepMs);
    throw new LineFullError({ bucket: name, key, waiting, priority, retryAfterMs });
  }

  function wait(options: DrawOptions, _waits?: Waits, sinceMs?: number): Promise<Slot> {
    options.signal?.throwIfAborted();
    assertUnits("draw()", options);
    const group = groups.of(options);
    shed(options, group);
    return new Promise((resolve, reject) => {
      pacer.wait(new WaitingCall(context, group, options, { resolve, reject }, sinceMs));
    });
  }

  function waitForJob(
    options: WaitOptions,
    waits?: Waits,
    sinceMs?: number,
  ): Promise<Slot | TooFar> {
    const group = groups.of(options);
    const roomInMs = group.notBeforeMs - performance.now();
    if (roomInMs > (options.patienceMs ?? Infinity)) return Promise.resolve(new TooFar(roomInMs));
    return new Promise((resolve, fail) => {
      const settling = {
        resolve,
        reject: (reason: unknown) => (reason instanceof TooFar ? resolve(reason) : fail(reason)),
        waits,
      };
      pacer.wait(new WaitingCall(context, group, options, settling, sinceMs));
    });
  }

  function tryNow(options: TryOptions): Promise<TryDecision> {
    assertUnits("tryDraw()", options);
    return tries.ask(options);
  }

  return {
    draw(options) {
      assertOpen();
      return entry.enter(wait, options);
    },
    drawForJob(options, waits) {
      assertOpen();
      // Its units were looked at as it was enqueued; what counted them then may be gone.
      return entry.enter(waitForJob, options, waits);
    },
    tryDraw(options) {
      assertOpen();
      return entry.enter(tryNow, options);
    },
    check(where, options) {
      const check = (): void => {
        assertUnits(where, options);
        groups.of(options);
      };
      try {
        check();
        return undefined;
      } catch (error) {
        return entry.afterLook(error, check);
      }
    },
    close() {
      isClosed = true;
    },
  };
}

/** Lets calls in by the policy that is known here, and those that it refuses by the one in force. */
interface Entry {
  /**
   * What is thrown by what the policy says is thrown only if no other is in force. While that is looked up, the caller
   * waits as it would in the line: its signal and its `maxWaitMs` hold, and its wait is among `waits`. `call` is given
   * those too, and is told since when, if it comes after a look.
   */
  enter<Options extends Bounds, T>(
    call: (options: Options, waits?: Waits, sinceMs?: number) => Promise<T>,
    options: Options,
    waits?: Waits,
  ): Promise<T>;
  /** The same for what was refused already. */
  afterLook<T>(refusal: unknown, call: () => T | Promise<T>): Promise<T>;
}

/** `assertOpen` throws once nobody is let in any more. */
function createEntry(bucket: string, refreshPolicy: RefreshPolicy, assertOpen: () => void): Entry {
  function afterLook<T>(
    refusal: unknown,
    call: () => T | Promise<T>,
    bounds: Bounds = {},
    waits?: Waits,
  ): Promise<T> {
    if (!isByPolicy(refusal)) throw refusal;
    return new Promise((resolve, reject) => {
      const wait = new Wait(
        {
          onLeave: reject,
          onExpire: () => {
            const facts = { bucket, key: bounds.key, maxWaitMs: bounds.maxWaitMs! };
            const estimates = { retryAfterMs: UNKNOWN_MS, limitedBy: UNANSWERED };
            reject(new WaitTooLongError({ ...facts, ...estimates }));
          },
        },
        { signal: bounds.signal, maxWaitMs: bounds.maxWaitMs, waits },
      );
      const goOn = (isOther: boolean): void => {
        // The call is listed in the same turn: a leave always finds one of its waits.
        if (!wait.end()) return;
        if (!isOther) throw refusal;
        assertOpen();
        resolve(call());
      };
      refreshPolicy()
        .then(goOn)
        .catch((error: unknown) => {
          wait.end();
          reject(error);
        });
    });
  }

  return {
    afterLook,
    /** Not async, and no closure for each call: they would cost as much as the rest. */
    enter(call, options, waits) {
      try {
        return call(options, waits);
      } catch (error) {
        const sinceMs = performance.now();
        return afterLook(error, () => call(options, waits, sinceMs), options, waits);
      }
    },
  };
}

/** What bounds a wait. */
type Bounds = Pick<DrawOptions, "key" | "maxWaitMs" | "signal">;

/** What callers are told of their wait. */
export interface Estimates {
  /** What holds a group's calls back, as errors name it: `"100/s"`. */
  readonly limitedBy: (group: Group) => string;
  /** About how long a call of this group that comes now will wait. */
  readonly estimateMs: (group: Group) => number;
}

/** An answer that takes so long is what a caller waits for. */
const SILENT_MS = 50;
/** What holds a call back, as errors name it, until Redis says what does. */
const UNANSWERED = "Redis, which has not answered yet";

export function createEstimates(
  known: KnownPolicy,
  pacer: Pick<Pacer, "waiting" | "askTimes">,
): Estimates {
  const isSilent = (): boolean => pacer.askTimes.silentMs > SILENT_MS;

  return {
    limitedBy({ bindsAt, callTerms }) {
      if (!pacer.askTimes.hasAnswered || isSilent()) return UNANSWERED;
      return nameBinding(bindsAt, callTerms.limits) ?? formatPolicy(known.policy);
    },
    estimateMs({ notBeforeMs, bindsAt, line, callTerms }) {
      const { keyLimits, limits, hasLeases, stepMs } = callTerms;
      const binding = limits[bindsAt - 1];
      const { turnAtMs } = pacer.askTimes;
      // A slot lies a horizon behind the turn at which it is drawn.
      const comesAtMs = Math.max(notBeforeMs, turnAtMs === 0 ? 0 : turnAtMs + HORIZON_MS);
      const dueMs = comesAtMs - performance.now();
      const waiting = keyLimits.length > 0 ? line.size : pacer.waiting;
      // Nobody can tell when a lease comes free, nor, of a pause or the like that may hide one, how long that takes.
      const isOfLease = bindsAt < 0 ? hasLeases : binding !== undefined && isLeased(binding);
      const isUnknown = isSilent() || isOfLease;
      const least = isUnknown ? UNKNOWN_MS : 1;
      // The first of those who wait goes when it is due, and the others one after the other.
      const inLineMs = dueMs > 0 ? dueMs + (waiting - 1) * stepMs : waiting * stepMs;
      return Math.ceil(Math.min(LONGEST_MS, Math.max(least, inLineMs)));
    },
  };
}
