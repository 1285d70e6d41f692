import { reasonOf } from "../core/describe-value.ts";
import { LeaseLostError } from "../core/errors.ts";
import { isLeased } from "../core/limits/registry.ts";
import type { LeasesRequest } from "../core/store.ts";
import type { Basics } from "./basics.ts";
import type { Conditions } from "./conditions.ts";

/** Calls of one key and cost: what their leases are renewed and given back by. */
export interface LeaseHolder {
  /** The key, if it has limits of its own. */
  readonly key: string | undefined;
  readonly conditions: Conditions;
}

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
const MOST_AT_ONCE = 500;

export function createLeaseKeeper(basics: Basics): LeaseKeeper {
  const { store, bucket, asker, known, logger } = basics;
  const kept = new Map<number, Kept>();
  const returned = new Map<LeaseHolder, number[]>();
  const returning = new Set<Promise<void>>();
  /** How long the shortest lease lasts that was kept. */
  let shortestMs = Infinity;
  let nextLease = 1;
  let timer: NodeJS.Timeout | undefined;
  let isReturnDue = false;
  let isClosed = false;

  function tend(): void {
    timer = undefined;
    const nowMs = performance.now();
    const due = new Map<LeaseHolder, number[]>();
    for (const [lease, { group, endsAtMs, lastsMs, ending }] of kept) {
      const startedMs = endsAtMs - lastsMs;
      if (nowMs >= startedMs + lastsMs * WARN_AT) {
        ending.abort(new LeaseLostError(bucket));
        if (isClosed) kept.delete(lease);
      } else if (!isClosed && nowMs >= startedMs + lastsMs * RENEW_AT) add(due, group, lease);
    }
    for (const [group, leases] of due) {
      for (const some of inParts(leases)) void renew(group, some);
    }
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

  function stopIfNone(): void {
    if (kept.size === 0) clearTimeout(timer);
  }

  /** By the limits that the lease was drawn under, whatever policy is in force by now. */
  function request({ key, conditions }: LeaseHolder, leases: readonly number[]): LeasesRequest {
    const { shared, keyLimits } = conditions;
    const terms = { ...known.terms, limits: shared };
    return { bucket, asker, terms, key, keyLimits, leases };
  }

  async function renew(group: LeaseHolder, leases: readonly number[]): Promise<void> {
    const sentAtMs = performance.now();
    try {
      const lost = new Set(await store.renew(request(group, leases)));
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

  function giveBack(): void {
    isReturnDue = false;
    for (const [group, leases] of returned) {
      for (const some of inParts(leases)) {
        const giving = store
          .release(request(group, some))
          // What cannot be given back comes free when it ends.
          .catch((error: unknown) =>
            logger.warn({ bucket, reason: reasonOf(error) }, "Leases could not be given back."),
          )
          .finally(() => returning.delete(giving));
        returning.add(giving);
      }
    }
    returned.clear();
  }

  function release(lease: number, group: LeaseHolder): void {
    kept.delete(lease);
    if (isClosed) return stopIfNone();
    add(returned, group, lease);
    if (isReturnDue) return;
    isReturnDue = true;
    queueMicrotask(giveBack);
  }

  return {
    number(count) {
      nextLease += count;
      return nextLease - count;
    },
    keep(lease, group, atMs) {
      const times = group.conditions.limits.filter(isLeased);
      const lastsMs = Math.min(...times.map(({ periodUs }) => periodUs)) / 1_000;
      if (lastsMs < shortestMs) {
        shortestMs = lastsMs;
        clearTimeout(timer);
        timer = undefined;
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
        if (!group.conditions.hasLeases) continue;
        for (let each = 0; each < count; each++) release(first + each, group);
      }
    },
    signalOf(lease) {
      return kept.get(lease)?.ending.signal ?? AbortSignal.abort(new LeaseLostError(bucket));
    },
    async settled() {
      if (isReturnDue) giveBack();
      await Promise.all(returning);
    },
    close() {
      isClosed = true;
      stopIfNone();
    },
  };
}

function add(to: Map<LeaseHolder, number[]>, group: LeaseHolder, lease: number): void {
  const leases = to.get(group);
  if (leases === undefined) to.set(group, [lease]);
  else leases.push(lease);
}

/** Lua takes some thousands of numbers at once. */
function inParts(leases: readonly number[]): (readonly number[])[] {
  const parts: (readonly number[])[] = [];
  for (let start = 0; start < leases.length; start += MOST_AT_ONCE) {
    parts.push(leases.slice(start, start + MOST_AT_ONCE));
  }
  return parts;
}
