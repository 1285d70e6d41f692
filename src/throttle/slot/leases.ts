import { reasonOf } from "../../core/describe.ts";
import { LeaseLostError } from "../../core/errors.ts";
import { isLeased } from "../../core/limits/registry.ts";
import type { LeasesRequest } from "../../core/store.ts";
import type { CallTerms } from "../costs.ts";
import type { BucketContext } from "../known-policy.ts";

/** The leases of calls that run here, or are about to. */
export interface LeaseKeeper {
  /** The number of the first of so many leases that are asked for; no number comes twice. */
  number(count: number): number;
  /** Keeps a lease that was drawn at `atMs` of `performance.now()`: it is renewed until it is given back. */
  keep(lease: number, group: LeaseHolder, atMs: number): void;
  /** Gives a lease back; again, or one that is not kept: does no harm. */
  release(lease: number, group: LeaseHolder): void;
  /** Gives back those of slots that are not used. */
  releaseAll(slots: readonly { readonly lease: number }[], group: LeaseHolder): void;
  /** Gives back what a reply that got lost may have granted, to any of the groups that were asked for. */
  releaseLost(first: number, count: number, groups: readonly LeaseHolder[]): void;
  /** Aborted before the lease ends, if it cannot be renewed. */
  signalOf(lease: number): AbortSignal;
  /** Resolves when all that were given back have left. */
  settled(): Promise<void>;
  /** Renews no more, and gives nothing back: what calls that still run hold ends by itself, and they are told before. */
  close(): void;
}

interface Kept {
  readonly group: LeaseHolder;
  readonly lastsMs: number;
  endsAtMs: number;
  readonly ending: AbortController;
}

/** Renewed when a third of its time is over, a lease survives two failures. */
const RENEW_AT = 1 / 3;
/** The call is told before another can take its place. */
const WARN_AT = 0.9;

export function createLeaseKeeper(context: BucketContext): LeaseKeeper {
  const { store, bucket, logger } = context;
  const kept = new Map<number, Kept>();
  const returns = createLeaseReturns(context);
  /** How long the shortest lease lasts that was kept. */
  let shortestMs = Infinity;
  let nextLease = 1;
  let timer: NodeJS.Timeout | undefined;
  let isClosed = false;

  function tend(): void {
    timer = undefined;
    const nowMs = performance.now();
    const due = new LeasesByHolder();
    for (const [lease, { group, endsAtMs, lastsMs, ending }] of kept) {
      const startedMs = endsAtMs - lastsMs;
      if (nowMs >= startedMs + lastsMs * WARN_AT) {
        ending.abort(new LeaseLostError(bucket));
        if (isClosed) kept.delete(lease);
      } else if (!isClosed && nowMs >= startedMs + lastsMs * RENEW_AT) due.add(lease, group);
    }
    for (const [group, leases] of due.inParts()) void renew(group, leases);
    setTimer();
  }

  /** When the first of those that could not be renewed is told; Infinity: nobody is to be told any more. */
  function firstWarnAtMs(): number {
    let firstMs = Infinity;
    for (const { endsAtMs, lastsMs, ending } of kept.values()) {
      if (!ending.signal.aborted) firstMs = Math.min(firstMs, endsAtMs - lastsMs * (1 - WARN_AT));
    }
    return firstMs;
  }

  function setTimer(): void {
    if (timer !== undefined || kept.size === 0) return;
    timer = setTimeout(tend, Math.min(shortestMs / 6, firstWarnAtMs() - performance.now()));
    // A call that runs keeps the process alive, not its lease.
    timer.unref();
  }

  function stop(): void {
    clearTimeout(timer);
    timer = undefined;
  }

  function stopIfNone(): void {
    if (kept.size === 0) stop();
  }

  async function renew(group: LeaseHolder, leases: readonly number[]): Promise<void> {
    const sentAtMs = performance.now();
    try {
      const lost = new Set(await store.renew(leasesRequest(context, group, leases)));
      for (const lease of leases) {
        const own = kept.get(lease);
        if (own === undefined) continue;
        if (lost.has(lease)) own.ending.abort(new LeaseLostError(bucket));
        else own.endsAtMs = sentAtMs + own.lastsMs;
      }
    } catch (error) {
      // It is tried again before the lease ends; then the call is told.
      logger.warn({ bucket, reason: reasonOf(error) }, "Leases could not be renewed.");
    }
  }

  function release(lease: number, group: LeaseHolder): void {
    kept.delete(lease);
    if (isClosed) stopIfNone();
    else returns.add(lease, group);
  }

  return {
    number(count) {
      nextLease += count;
      return nextLease - count;
    },
    keep(lease, group, atMs) {
      const times = group.callTerms.limits.filter(isLeased);
      const lastsMs = Math.min(...times.map(({ periodUs }) => periodUs)) / 1_000;
      if (lastsMs < shortestMs) {
        shortestMs = lastsMs;
        stop();
      }
      const ending = new AbortController();
      kept.set(lease, { group, lastsMs, endsAtMs: atMs + lastsMs, ending });
      setTimer();
    },
    release,
    releaseAll(slots, group) {
      for (const { lease } of slots) if (lease > 0) release(lease, group);
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
    settled: () => returns.settled(),
    close() {
      isClosed = true;
      stopIfNone();
    },
  };
}

/** Gives leases back, all of one tick together. */
interface LeaseReturns {
  add(lease: number, holder: LeaseHolder): void;
  /** Resolves when all that were given back have left. */
  settled(): Promise<void>;
}

function createLeaseReturns(context: BucketContext): LeaseReturns {
  const { store, bucket, logger } = context;
  const returning = new Set<Promise<void>>();
  let due: LeasesByHolder | undefined;

  function giveBack(): void {
    const parts = due?.inParts() ?? [];
    due = undefined;
    for (const [holder, leases] of parts) {
      const giving = store
        .release(leasesRequest(context, holder, leases))
        // What cannot be given back comes free when it ends.
        .catch((error: unknown) =>
          logger.warn({ bucket, reason: reasonOf(error) }, "Leases could not be given back."),
        )
        .finally(() => returning.delete(giving));
      returning.add(giving);
    }
  }

  return {
    add(lease, holder) {
      if (due === undefined) {
        due = new LeasesByHolder();
        queueMicrotask(giveBack);
      }
      due.add(lease, holder);
    },
    async settled() {
      giveBack();
      await Promise.all(returning);
    },
  };
}

/** Calls of one key and cost: what their leases are renewed and given back by. */
export interface LeaseHolder {
  /** The key, if it has limits of its own. */
  readonly limitedKey: string | undefined;
  readonly callTerms: CallTerms;
}

/** Lua takes some thousands of numbers at once. */
const MOST_AT_ONCE = 500;

/** Leases that something is to be asked for together. */
class LeasesByHolder {
  readonly #leases = new Map<LeaseHolder, number[]>();

  add(lease: number, holder: LeaseHolder): void {
    const leases = this.#leases.get(holder);
    if (leases === undefined) this.#leases.set(holder, [lease]);
    else leases.push(lease);
  }

  /** As many of a holder at once as one request may name. */
  *inParts(): Iterable<readonly [LeaseHolder, readonly number[]]> {
    for (const [holder, leases] of this.#leases) {
      for (let start = 0; start < leases.length; start += MOST_AT_ONCE) {
        yield [holder, leases.slice(start, start + MOST_AT_ONCE)];
      }
    }
  }
}

/** By the limits that the leases were drawn under, whatever policy is in force by now. */
function leasesRequest(
  { bucket, asker, known }: BucketContext,
  { limitedKey: key, callTerms: { shared, keyLimits } }: LeaseHolder,
  leases: readonly number[],
): LeasesRequest {
  const terms = { ...known.terms, limits: shared };
  return { bucket, asker, terms, key, keyLimits, leases };
}
