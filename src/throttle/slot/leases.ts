import { reasonOf } from "../../core/describe.ts";
import { LeaseLostError } from "../../core/errors.ts";
import { isLeased } from "../../core/limits/registry.ts";
import type { ClosedWindow, LeasesRequest, LimitedKey } from "../../core/store.ts";
import type { CallTerms } from "../costs.ts";
import type { BucketContext } from "../known-policy.ts";

/**
 * Manages the leases of this process's calls. It numbers leases before the draw, renews them while their calls run, and
 * releases them afterwards. If a lease cannot be renewed, the keeper warns the lease's call before the lease expires.
 */
export interface LeaseKeeper {
  /** The name by which the store knows the process that holds the leases. */
  readonly asker: string;
  /** Reserves `count` lease numbers and returns the first one. No number is used twice. */
  number(count: number): number;
  /** Adds a lease that was drawn at `atMs` on `performance.now()`, and renews the lease until it is released. */
  keep(lease: number, group: LeaseHolder, atMs: number): void;
  /**
   * Renews a lease that another process drew, and then manages it like `keep` does. Resolves to false if the lease has
   * expired.
   */
  takeOver(lease: number, group: LeaseHolder): Promise<boolean>;
  /**
   * Releases a lease. Does nothing in the store if the lease has already expired there. `latencyUs` is as in
   * `LeasesRequest`. Defaults to 0, which means unknown.
   */
  release(lease: number, group: LeaseHolder, latencyUs?: number): void;
  /** Releases the leases of unused slots. */
  releaseAll(slots: readonly { readonly lease: number }[], group: LeaseHolder): void;
  /** Stores two numbers from a reply: how many free leases no call waits for, and how many replicas draw. */
  learnSpare(spare: number, alive: number): void;
  /**
   * Passes on a free lease that the store offered but that the calls of `group` cannot use. The store then wakes other
   * processes that wait for a lease.
   */
  passOn(group: LeaseHolder): void;
  /**
   * Releases all leases that a draw may have granted although its reply was lost. Any of the groups may hold each
   * lease.
   */
  releaseLost(first: number, count: number, groups: readonly LeaseHolder[]): void;
  /** Returns a signal that aborts before the lease expires, if the lease cannot be renewed. */
  signalOf(lease: number): AbortSignal;
  /**
   * Calls `listener` when the signal of `signalOf` would abort, or immediately if the lease has expired. A listener is
   * cheaper than a signal.
   */
  onEnding(lease: number, listener: OnEnding): void;
  /** Resolves when all requests that release leases have ended. */
  settled(): Promise<void>;
  /** Stops renewing and releasing leases. The leases of calls that still run expire after a warning. */
  close(): void;
}

type OnEnding = (reason: LeaseLostError) => void;

interface Kept {
  readonly group: LeaseHolder;
  readonly lastsMs: number;
  endsAtMs: number;
  readonly ending: Ending;
}

/**
 * The warning that a lease is about to expire. The signal is created at its first use, because a signal for each call
 * would double the cost of a lease.
 */
class Ending {
  #reason: LeaseLostError | undefined;
  #controller: AbortController | undefined;
  #listeners: OnEnding[] | undefined;

  get isWarned(): boolean {
    return this.#reason !== undefined;
  }

  get signal(): AbortSignal {
    this.#controller ??= new AbortController();
    if (this.#reason !== undefined) this.#controller.abort(this.#reason);
    return this.#controller.signal;
  }

  on(listener: OnEnding): void {
    if (this.#reason === undefined) (this.#listeners ??= []).push(listener);
    else listener(this.#reason);
  }

  warn(reason: LeaseLostError): void {
    if (this.#reason !== undefined) return;
    this.#reason = reason;
    this.#controller?.abort(reason);
    for (const listener of this.#listeners ?? []) listener(reason);
  }
}

/** The fraction of a lease's duration after which the lease is renewed. A lease survives two failed renewals. */
const RENEW_AT = 1 / 3;
/**
 * The fraction of a lease's duration after which the lease's call is warned. No other call can use the lease before it
 * expires.
 */
const WARN_AT = 0.9;

/** While leases are spare, all calls that end within this time release their leases in one request. */
const GATHER_MS = 25;
/** The fraction of the spare leases that all replicas together may hold back, to release them in one request. */
const HELD_BACK_PART = 1 / 4;

export function createLeaseKeeper(
  context: BucketContext,
  onWindows: (closed: readonly ClosedWindow[]) => void = () => {},
): LeaseKeeper {
  const { store, bucket, logger } = context;
  const kept = new Map<number, Kept>();
  /** The leases to release at the end of this tick, or {@link GATHER_MS} later. */
  let ended: LeasesByHolder | undefined;
  /** The most ended leases that may be held back, to be released together. */
  let mostHeldBack = 0;
  let gathering: NodeJS.Timeout | undefined;
  const returning = new Set<Promise<void>>();
  /** The duration of the shortest lease so far. */
  let shortestMs = Infinity;
  /** The latencies of ended calls whose limit adapts to them, by lease. */
  const latenciesUs = new Map<number, number>();
  let nextLease = 1;
  let timer: NodeJS.Timeout | undefined;
  /** True if the ended leases will be released at the end of this tick. */
  let isSendDue = false;
  let isClosed = false;

  function setTimer(): void {
    if (timer !== undefined || kept.size === 0) return;
    timer = setTimeout(
      renewAndWarn,
      Math.min(shortestMs / 6, firstWarningAtMs() - performance.now()),
    );
    // The timer must not keep the process alive. A running call does that by itself.
    timer.unref();
  }

  function stop(): void {
    clearTimeout(timer);
    timer = undefined;
  }

  function stopIfNone(): void {
    if (kept.size === 0) stop();
  }

  /** Renews the leases that are due, and warns the calls whose leases are about to expire. */
  function renewAndWarn(): void {
    timer = undefined;
    const nowMs = performance.now();
    const due = new LeasesByHolder();
    for (const [lease, { group, endsAtMs, lastsMs, ending }] of kept) {
      const startedMs = endsAtMs - lastsMs;
      if (nowMs >= startedMs + lastsMs * WARN_AT) {
        ending.warn(new LeaseLostError(bucket));
        if (isClosed) kept.delete(lease);
      } else if (!isClosed && nowMs >= startedMs + lastsMs * RENEW_AT) due.add(lease, group);
    }
    for (const [group, leases] of due.inParts()) void renew(group, leases);
    setTimer();
  }

  /** Returns the time of the next warning. Infinity if every call was already warned. */
  function firstWarningAtMs(): number {
    let firstMs = Infinity;
    for (const { endsAtMs, lastsMs, ending } of kept.values()) {
      if (!ending.isWarned) firstMs = Math.min(firstMs, endsAtMs - lastsMs * (1 - WARN_AT));
    }
    return firstMs;
  }

  async function renew(group: LeaseHolder, leases: readonly number[]): Promise<void> {
    const sentAtMs = performance.now();
    try {
      const lost = new Set(await store.renew(leasesRequest(context, group, leases)));
      for (const lease of leases) {
        const own = kept.get(lease);
        if (own === undefined) continue;
        if (lost.has(lease)) own.ending.warn(new LeaseLostError(bucket));
        else own.endsAtMs = sentAtMs + own.lastsMs;
      }
    } catch (error) {
      const reason = reasonOf(error);
      logger.warn({ bucket, reason }, "Could not renew leases; retrying until they expire.");
    }
  }

  function release(lease: number, group: LeaseHolder, latencyUs = 0): void {
    kept.delete(lease);
    if (isClosed) return stopIfNone();
    if (latencyUs !== 0) latenciesUs.set(lease, latencyUs);
    ended ??= new LeasesByHolder();
    ended.add(lease, group);
    if (ended.count > mostHeldBack || !group.callTerms.areLeasesShared) sendEndedSoon();
    else gathering ??= setTimeout(sendEnded, GATHER_MS);
  }

  function sendEndedSoon(): void {
    if (isSendDue) return;
    isSendDue = true;
    queueMicrotask(sendEnded);
  }

  function sendEnded(): void {
    isSendDue = false;
    clearTimeout(gathering);
    gathering = undefined;
    const requests = ended?.together() ?? [];
    ended = undefined;
    for (const [group, leases] of requests) {
      const giving = store
        .release({ ...leasesRequest(context, group, leases), latenciesUs: takeLatencies(leases) })
        .then(onWindows)
        .catch((error: unknown) => {
          const reason = reasonOf(error);
          logger.warn(
            { bucket, reason },
            "Could not release leases; Redis frees their places when they expire.",
          );
        })
        .finally(() => returning.delete(giving));
      returning.add(giving);
    }
  }

  /** Returns the latencies of the calls that held these leases. Undefined if none is known. */
  function takeLatencies(leases: readonly number[]): readonly number[] | undefined {
    if (latenciesUs.size === 0) return undefined;
    return leases.map((lease) => {
      const latencyUs = latenciesUs.get(lease) ?? 0;
      latenciesUs.delete(lease);
      return latencyUs;
    });
  }

  function keep(lease: number, group: LeaseHolder, atMs: number): void {
    const leased = group.callTerms.limits.filter(isLeased);
    const lastsMs = Math.min(...leased.map(({ periodUs }) => periodUs)) / 1_000;
    if (lastsMs < shortestMs) {
      shortestMs = lastsMs;
      stop();
    }
    kept.set(lease, { group, lastsMs, endsAtMs: atMs + lastsMs, ending: new Ending() });
    setTimer();
  }

  return {
    asker: context.asker,
    number(count) {
      nextLease += count;
      return nextLease - count;
    },
    keep,
    async takeOver(lease, group) {
      const sentAtMs = performance.now();
      const lost = await store.renew(leasesRequest(context, group, [lease]));
      if (lost.length > 0) return false;
      // Under a newer policy, the call may need no lease.
      if (group.callTerms.hasLeases) keep(lease, group, sentAtMs);
      return true;
    },
    release,
    releaseAll(slots, group) {
      for (const { lease } of slots) if (lease > 0) release(lease, group);
    },
    learnSpare(spare, alive) {
      mostHeldBack = Math.floor((spare * HELD_BACK_PART) / alive);
      if ((ended?.count ?? 0) > mostHeldBack) sendEndedSoon();
    },
    passOn(group) {
      if (isClosed) return;
      ended ??= new LeasesByHolder();
      ended.addNone(group);
      sendEndedSoon();
    },
    releaseLost(first, count, groups) {
      for (const group of groups) {
        if (!group.callTerms.hasLeases) continue;
        for (let each = 0; each < count; each++) release(first + each, group);
      }
    },
    signalOf(lease) {
      return kept.get(lease)?.ending.signal ?? AbortSignal.abort(new LeaseLostError(bucket));
    },
    onEnding(lease, listener) {
      const own = kept.get(lease);
      if (own === undefined) listener(new LeaseLostError(bucket));
      else own.ending.on(listener);
    },
    async settled() {
      sendEnded();
      await Promise.all(returning);
    },
    close() {
      isClosed = true;
      stopIfNone();
    },
  };
}

/** A group of calls with the same key and cost. Their leases are renewed together. */
export interface LeaseHolder {
  /** The levels of the calls' key that have limits. */
  readonly scopes: readonly LimitedKey[];
  readonly callTerms: CallTerms;
}

/** The keys and shared limits that a request for leases is about. */
interface LeaseScopes {
  readonly scopes: readonly LimitedKey[];
  readonly callTerms: Pick<CallTerms, "shared">;
}

type JointScopes = LeaseScopes & { readonly scopes: LimitedKey[] };

/** Adds the scopes that are not yet listed. For example, all endpoints of a tenant share the tenant's scope. */
function addScopes({ scopes }: JointScopes, more: LeaseScopes): void {
  for (const scope of more.scopes) {
    const { key, limits } = scope;
    if (!scopes.some((known) => known.key === key && known.limits === limits)) scopes.push(scope);
  }
}

/** The most leases in a request for several keys. It is small, because Redis looks for each lease under each key. */
const MOST_JOINT = 50;
/** The most leases in one request. Lua can unpack only a few thousand numbers at once. */
const MOST_AT_ONCE = 500;

/** A list of leases, grouped by the calls that hold them. */
class LeasesByHolder {
  readonly #leases = new Map<LeaseHolder, number[]>();
  #count = 0;

  /** The number of leases. */
  get count(): number {
    return this.#count;
  }

  add(lease: number, holder: LeaseHolder): void {
    this.#count += 1;
    const leases = this.#leases.get(holder);
    if (leases === undefined) this.#leases.set(holder, [lease]);
    else leases.push(lease);
  }

  addNone(holder: LeaseHolder): void {
    if (!this.#leases.has(holder)) this.#leases.set(holder, []);
  }

  /**
   * Groups leases into release requests. Leases of several keys share a request, because releasing a lease under a key
   * that never had it changes nothing.
   */
  *together(): Iterable<readonly [LeaseScopes, readonly number[]]> {
    let joint: { readonly of: JointScopes; readonly leases: number[] } | undefined;
    for (const [holder, leases] of this.inParts()) {
      const { shared } = holder.callTerms;
      // A request without leases passes on an offered lease of one key, so it must not be joined with other requests.
      if (leases.length === 0) yield [holder, leases];
      else if (joint?.of.callTerms.shared === shared && joint.leases.length < MOST_JOINT) {
        addScopes(joint.of, holder);
        joint.leases.push(...leases);
      } else {
        if (joint !== undefined) yield [joint.of, joint.leases];
        joint = {
          of: { callTerms: { shared }, scopes: [...holder.scopes] },
          leases: [...leases],
        };
      }
    }
    if (joint !== undefined) yield [joint.of, joint.leases];
  }

  /** Splits the leases of each holder into parts that fit into one request. */
  *inParts(): Iterable<readonly [LeaseHolder, readonly number[]]> {
    for (const [holder, leases] of this.#leases) {
      if (leases.length === 0) yield [holder, leases];
      for (let start = 0; start < leases.length; start += MOST_AT_ONCE) {
        yield [holder, leases.slice(start, start + MOST_AT_ONCE)];
      }
    }
  }
}

/** Builds a request with the limits under which the leases were drawn, because another policy may be active now. */
function leasesRequest(
  { bucket, asker, known }: BucketContext,
  { scopes, callTerms: { shared } }: LeaseScopes,
  leases: readonly number[],
): LeasesRequest {
  const terms = { ...known.terms, limits: shared };
  return { bucket, asker, terms, scopes, leases };
}
