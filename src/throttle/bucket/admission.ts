import { ClosedError, isRefusal, LineFullError, WaitTooLongError } from "../../core/errors.ts";
import { isLeased } from "../../core/limits/registry.ts";
import { LONGEST_MS, RANKS, type Priority } from "../../core/input/options.ts";
import { HORIZON_MS } from "../../core/policy/limit-makers.ts";
import { formatPolicy } from "../../core/policy/policy.ts";
import type { OwnedBucket } from "../bucket.ts";
import { withDeadline, type ObservedDrawCall, type TryCall } from "../call-options.ts";
import { isByPolicy, type KnownPolicy, type RefreshPolicy } from "../known-policy.ts";
import type { DrawnSlot } from "../slot/slot.ts";
import { nameBinding, UNKNOWN_MS, type TryDecision } from "../try/decision.ts";
import type { TryDraws } from "../try/try-draw.ts";
import type { Group, Groups, EarliestStart } from "../waiting/group.ts";
import type { Pacer } from "../waiting/pacer.ts";
import { Wait, type WaitRegistry } from "../waiting/wait.ts";
import type { Tally } from "./facts/tally.ts";
import {
  createArrivals,
  NoRoomYet,
  WaitingCall,
  type CallContext,
  type WaitOptions,
} from "../waiting/waiting-call.ts";

/** Adds calls to the line of a bucket, or rejects them before they wait. */
export interface Admission {
  /**
   * Waits for a slot.
   *
   * @throws {@link ClosedError} after `close()`.
   * @throws {@link LineFullError} when the line is full for calls of this priority.
   * @throws the signal's reason, when the signal is already aborted, and the errors of {@link Groups.of}.
   */
  readonly draw: (options: ObservedDrawCall) => Promise<DrawnSlot>;
  /**
   * Waits for a slot for the additional cost of a job's call: the cost beyond what the job has drawn. Never rejects
   * because the line is full.
   */
  drawBeyond(options: WaitOptions): Promise<DrawnSlot>;
  /**
   * Waits for the slot of a job. Never rejects because the line is full. Resolves to `NoRoomYet` if the job's key has
   * no room within `patienceMs`. The owner of `waits` can cancel the wait.
   */
  readonly drawForJob: OwnedBucket["drawForJob"];
  /** @throws {@link ClosedError} after `close()`, and the errors of {@link Groups.of}. */
  readonly tryDraw: (options: TryCall) => Promise<TryDecision>;
  readonly check: OwnedBucket["checkDrawable"];
  readonly refusalKnown: OwnedBucket["refusalKnown"];
  readonly whenHopeless: OwnedBucket["whenHopeless"];
  /** Checks the watched calls of one key or of all keys again: can they still start before their deadlines? */
  readonly onChange: (key: string | undefined) => void;
  /** Rejects all further calls. */
  close(): void;
}

export interface AdmissionParts {
  readonly name: string;
  readonly maxWaiting: number;
  /** Returns the number of callers that wait in this process. */
  readonly waiting: () => number;
  readonly groups: Groups;
  readonly pacer: Pacer;
  readonly tries: TryDraws;
  readonly known: KnownPolicy;
  readonly refreshPolicy: RefreshPolicy;
  /** @throws {@link InvalidOptionError} when a cost names a unit that no limit counts. */
  readonly assertUnits: (where: string, options: TryCall) => void;
  readonly tally: Pick<Tally, "touch" | "count" | "traces">;
  /** Called with the slot of each call. */
  readonly onSlot: CallContext["onSlot"];
  /** Called at the first call, to subscribe to the store's messages. */
  readonly listen: (() => void) | undefined;
}

/**
 * The fraction of `maxWaiting` up to which calls of each priority may wait. The rest is reserved for more urgent calls.
 */
const SHED_AT: Readonly<Record<Priority, number>> = {
  critical: 1,
  high: 0.9,
  normal: 0.8,
  low: 0.7,
};

type Bounds = Pick<ObservedDrawCall, "key" | "maxWaitMs" | "untilMs" | "signal">;

export function createAdmission(parts: AdmissionParts): Admission {
  const { name, maxWaiting, groups, pacer, tries, refreshPolicy, assertUnits } = parts;
  let calls = 0;
  let isListening = false;
  let isClosed = false;
  const context: CallContext = {
    ...createEstimates(parts.known, pacer),
    name,
    takeNumber: () => (calls += 1),
    queuedAtMs: createArrivals(),
    leave: (call) => pacer.leave(call),
    count: parts.tally.count,
    onSlot: parts.onSlot,
  };

  function assertOpen(): void {
    if (isClosed) throw new ClosedError(`Bucket "${name}"`);
    if (isListening) return;
    isListening = true;
    parts.listen?.();
  }

  /**
   * Admits a call under the policy that this process knows. If that policy rejects the call, reads the active policy
   * and tries again. `call` then receives the time at which the wait began. This function is not async and creates no
   * closure for a call that is admitted, because either would double the cost of a draw.
   */
  function enter<Options extends Bounds, T>(
    call: (options: Options, waits?: WaitRegistry, sinceMs?: number) => Promise<T>,
    options: Options,
    waits?: WaitRegistry,
  ): Promise<T> {
    assertOpen();
    try {
      return call(options, waits);
    } catch (error) {
      const sinceMs = performance.now();
      const looking = (): Promise<T> =>
        afterLookup(error, () => call(options, waits, sinceMs), options, waits);
      return counted(error, looking);
    }
  }

  /**
   * Runs `answer`, and counts the call as refused if it fails with `refusal`. Such a call was rejected before it
   * waited; waiting calls count themselves.
   */
  function counted<T>(refusal: unknown, answer: () => Promise<T>): Promise<T> {
    const count = (error: unknown): void => {
      if (error === refusal && isRefusal(error)) parts.tally.count("refused", 1);
    };
    try {
      const answering = answer();
      answering.catch(count);
      return answering;
    } catch (error) {
      count(error);
      throw error;
    }
  }

  /**
   * Reads the active policy after the known policy rejected a call. Calls `call` again if the active policy is another
   * one. Until then, the call waits as in the line: with its signal, its deadline, and an entry in `waits`.
   */
  function afterLookup<T>(
    refusal: unknown,
    call: () => T | Promise<T>,
    bounds: Bounds = {},
    waits?: WaitRegistry,
  ): Promise<T> {
    if (!isByPolicy(refusal)) throw refusal;
    const { key, maxWaitMs, untilMs, signal } = bounds;
    return new Promise((resolve, reject) => {
      const waiting = {
        onCancel: reject,
        onExpire: () => {
          const facts = { bucket: name, key, maxWaitMs: maxWaitMs! };
          const estimates = { retryAfterMs: UNKNOWN_MS, limitedBy: UNANSWERED };
          parts.tally.count("refused", 1);
          reject(new WaitTooLongError({ ...facts, ...estimates }));
        },
      };
      const wait = new Wait(waiting, { signal, untilMs, waits });
      const goOn = (isOther: boolean): void => {
        // The call adds its next wait in the same turn, so `waits` always has an entry for it.
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

  /** Adds a trace to the options if waits are traced. */
  function followed<Options extends WaitOptions>(options: Options): Options {
    const trace = parts.tally.traces()?.begin(options.producer);
    return trace === undefined ? options : { ...options, trace };
  }

  /** @throws {@link LineFullError} when the line is full for calls of this priority. */
  function shed({ priority = "normal", key }: ObservedDrawCall, group: Group): void {
    const waiting = parts.waiting();
    const most = maxWaiting * SHED_AT[priority];
    if (waiting < most) return;
    const retryAfterMs = Math.ceil((waiting - most + 1) * group.callTerms.stepMs);
    throw new LineFullError({ bucket: name, key, waiting, priority, retryAfterMs });
  }

  function wait(options: WaitOptions, _waits?: WaitRegistry, sinceMs?: number): Promise<DrawnSlot> {
    options.signal?.throwIfAborted();
    assertUnits("draw()", options);
    const group = groups.of(options);
    if (options.beyond === undefined) shed(options, group);
    return new Promise((resolve, reject) => {
      pacer.wait(new WaitingCall(context, group, options, { resolve, reject }, sinceMs));
      parts.tally.touch();
    });
  }

  const watches = createWatches(async (options) => pacer.lookUp(groups.of(options)));

  function refusalOf(options: ObservedDrawCall): WaitTooLongError | undefined {
    const { key, maxWaitMs, untilMs = Infinity, priority = "normal" } = options;
    try {
      const group = groups.of(options);
      const notBeforeMs = pacer.earliestStarts.surelyNotBeforeMs(group, performance.now());
      if (untilMs >= notBeforeMs) return undefined;
      const facts = { bucket: name, key, maxWaitMs: maxWaitMs!, isHopeless: true };
      const estimates = context.estimate(group, { priority, isInLine: false });
      return new WaitTooLongError({ ...facts, ...estimates });
    } catch {
      // Ignored here: if the active policy rejects the call too, the draw throws the error.
      return undefined;
    }
  }

  /**
   * Does not check the units of the cost. They were checked when the job was enqueued, and a live change may have
   * removed the limit that counts them.
   */
  function waitForJob(
    options: WaitOptions,
    waits?: WaitRegistry,
    sinceMs?: number,
  ): Promise<DrawnSlot | NoRoomYet> {
    const { patienceMs = Infinity, untilMs = Infinity } = options;
    const group = groups.of(options);
    const nowMs = performance.now();
    const roomInMs = group.notBeforeMs - nowMs;
    // A job that may miss its deadline does not resolve to `NoRoomYet`. It keeps waiting until it is rejected.
    const isInTime = untilMs >= group.notBeforeMs;
    if (roomInMs > patienceMs && isInTime) return Promise.resolve(new NoRoomYet(roomInMs, group));
    return new Promise((resolve, fail) => {
      const settling = {
        resolve,
        reject: (reason: unknown) => (reason instanceof NoRoomYet ? resolve(reason) : fail(reason)),
        waits,
      };
      pacer.wait(new WaitingCall(context, group, options, settling, sinceMs));
      parts.tally.touch();
    });
  }

  function tryNow(options: TryCall): Promise<TryDecision> {
    assertUnits("tryDraw()", options);
    return tries.ask(options);
  }

  return {
    draw: (options) => enter(wait, followed(withDeadline(options))),
    drawBeyond: (options) => enter(wait, withDeadline(options)),
    drawForJob: (options, waits) => enter(waitForJob, followed(withDeadline(options)), waits),
    tryDraw: (options) => enter(tryNow, options),
    check(where, options) {
      const check = (): void => {
        assertUnits(where, options);
        groups.of(options);
      };
      try {
        check();
        return undefined;
      } catch (error) {
        return afterLookup(error, check);
      }
    },
    refusalKnown(options) {
      if (options.maxWaitMs === undefined) return undefined;
      return refusalOf(withDeadline(options));
    },
    whenHopeless(options, refuse) {
      if (options.maxWaitMs === undefined) return () => {};
      const call = withDeadline(options);
      return watches.add(call, () => {
        const refusal = refusalOf(call);
        if (refusal !== undefined) refuse(refusal);
      });
    },
    onChange: (key) => watches.onChange(key),
    close() {
      isClosed = true;
    },
  };
}

/** Watches calls that wait outside the line, and rejects them as soon as they cannot start before their deadlines. */
interface Watches {
  /** Calls `check` now and after each change. Returns a function that ends the watch. */
  add(options: ObservedDrawCall, check: () => void): () => void;
  onChange(key: string | undefined): void;
}

function createWatches(look: (options: ObservedDrawCall) => Promise<void>): Watches {
  const watches = new Set<{ readonly key: string | undefined; readonly look: () => void }>();

  return {
    add(options, check) {
      const { key } = options;
      const checkOn = (): void => void (watches.has(watch) && check());
      // Ignores errors, because the draw of the call will throw them again.
      const lookOn = (): void => void look(options).then(checkOn, () => {});
      const watch = { key, look: lookOn };
      watches.add(watch);
      check();
      if (watches.has(watch)) lookOn();
      return () => watches.delete(watch);
    },
    onChange(key) {
      if (watches.size === 0) return;
      // Checks in a microtask: after a policy change, the groups must first be created again.
      queueMicrotask(() => {
        for (const watch of watches) if (key === undefined || watch.key === key) watch.look();
      });
    },
  };
}

/** If a reply takes longer than this, errors name Redis instead of a limit as the cause of the wait. */
const SILENT_MS = 50;
const UNANSWERED = "Redis, which has not answered yet";

/** Estimates the retry time and the limit that errors report. */
function createEstimates(known: KnownPolicy, pacer: Pacer): Pick<CallContext, "estimate"> {
  const isSilent = (): boolean => pacer.askTimes.silentMs > SILENT_MS;

  /** Returns the earliest start of the group's calls. Undefined if no limit or other cause delays them. */
  function longestOf(group: Group, nowMs: number): EarliestStart | undefined {
    const reply = pacer.earliestStarts.of(group, nowMs);
    return reply === undefined || reply.bindsAt === 0 ? undefined : reply;
  }

  function limitedBy({ bindsAt, callTerms }: Group, reply: EarliestStart | undefined): string {
    return nameBinding(reply?.bindsAt ?? bindsAt, callTerms) ?? formatPolicy(known.policy);
  }

  function waitMs(
    group: Group,
    nowMs: number,
    { isInLine, priority }: { isInLine: boolean; priority: Priority },
  ): number {
    const { notBeforeMs, line, callTerms, turns } = group;
    const { turnAtMs } = pacer.askTimes;
    const soonestMs = pacer.earliestStarts.of(group, nowMs)?.atMs ?? 0;
    // Replicas may book slots ahead of time, depending on the priority. A replica's slot therefore comes `aheadMs`
    // later than its turn.
    const aheadMs = (HORIZON_MS * known.policy.shares[RANKS[priority]]!) / 1_000;
    const turnMs = turnAtMs === 0 ? 0 : turnAtMs + aheadMs;
    // Turns only delay calls in a line. A call that is rejected immediately never joins one.
    const isKnown = !isInLine && soonestMs > nowMs;
    const dueMs = (isKnown ? soonestMs : Math.max(notBeforeMs, turnMs, soonestMs)) - nowMs;
    // While the calls of a key take their turns, each other group starts as many calls at most.
    const inTurns =
      turns === undefined ? Infinity : (line.size + (isInLine ? 0 : 1)) * pacer.groups;
    const waiting = group.scopes.length > 0 ? line.size : Math.min(pacer.waiting, inTurns);
    const others = isInLine ? waiting - 1 : waiting;
    // The first caller starts at its earliest time, and each further caller one step later.
    return dueMs > 0 ? dueMs + others * callTerms.stepMs : (others + 1) * callTerms.stepMs;
  }

  return {
    estimate(group, asker) {
      const nowMs = performance.now();
      const { bindsAt, callTerms } = group;
      const reply = longestOf(group, nowMs);
      const binding = callTerms.limits[(reply?.bindsAt ?? bindsAt) - 1];
      // The time at which a lease becomes free is unknown. During a pause or cooldown, the calls may also wait for a
      // lease.
      const isOfLease =
        bindsAt < 0 ? callTerms.hasLeases : binding !== undefined && isLeased(binding);
      // A call outside the line is rejected because of a known limit, even if Redis does not reply.
      const isUnanswered = asker.isInLine && (!pacer.askTimes.hasAnswered || isSilent());
      const least = isUnanswered || isOfLease ? UNKNOWN_MS : 1;
      const inLineMs = waitMs(group, nowMs, asker);
      return {
        retryAfterMs: Math.ceil(Math.min(LONGEST_MS, Math.max(least, inLineMs))),
        limitedBy: isUnanswered ? UNANSWERED : limitedBy(group, reply),
      };
    },
  };
}
