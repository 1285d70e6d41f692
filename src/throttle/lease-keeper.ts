import { LeaseLostError } from "../core/errors.ts";
import type { Limit } from "../core/limits/limit.ts";
import type { Logger } from "../core/logger.ts";
import type { Store } from "../core/store.ts";
import type { Knowledge } from "./known-terms.ts";

/** The leases of calls that run here, or are about to. */
export interface LeaseKeeper {
  /** Keeps a lease that was drawn at `atMs` of `performance.now()`: it is renewed until it is given back. */
  readonly keep: (lease: number, key: string | undefined, atMs: number) => void;
  /** Gives a lease back; again, or one that is not kept: does no harm. */
  readonly release: (lease: number, key: string | undefined) => void;
  /** Aborted before the lease ends, if it cannot be renewed. */
  signalOf(lease: number): AbortSignal;
  /** Resolves when all that were given back have left. */
  settled(): Promise<void>;
  close(): void;
}

interface Kept {
  readonly key: string | undefined;
  readonly lastsMs: number;
  endsAtMs: number;
  readonly ending: AbortController;
}

/** Renewed when a third of its time is over, a lease survives two failures. */
const RENEW_AT = 1 / 3;
/** The call is told before another can take its place. */
const WARN_AT = 0.9;
const MOST_AT_ONCE = 500;

export function createLeaseKeeper(options: {
  readonly store: Store;
  readonly bucket: string;
  readonly asker: string;
  readonly known: Knowledge;
  readonly logger: Logger;
}): LeaseKeeper {
  const { store, bucket, asker, known, logger } = options;
  const kept = new Map<number, Kept>();
  const returned = new Map<string | undefined, number[]>();
  const returning = new Set<Promise<void>>();
  let timer: NodeJS.Timeout | undefined;
  let isReturnDue = false;
  /** How long the shortest lease lasts that was kept. */
  let shortestMs = Infinity;

  function keyLimits(key: string | undefined): readonly Limit[] {
    return key === undefined ? [] : (known.policy.perKey?.limitsOf(key) ?? []);
  }

  function lastsMs(key: string | undefined): number {
    const limits = [...known.policy.limits, ...keyLimits(key)];
    const times = limits
      .filter(({ kind }) => kind === "concurrency")
      .map(({ periodUs }) => periodUs);
    return Math.min(...times) / 1_000;
  }

  function tend(): void {
    timer = undefined;
    const nowMs = performance.now();
    const due = new Map<string | undefined, number[]>();
    for (const [lease, { key, endsAtMs, lastsMs: lasts, ending }] of kept) {
      const startedMs = endsAtMs - lasts;
      if (nowMs >= startedMs + lasts * WARN_AT) ending.abort(new LeaseLostError(bucket));
      else if (nowMs >= startedMs + lasts * RENEW_AT)
        due.set(key, [...(due.get(key) ?? []), lease]);
    }
    for (const [key, leases] of due) void renew(key, leases);
    setTimer();
  }

  function setTimer(): void {
    if (timer !== undefined || kept.size === 0) return;
    timer = setTimeout(tend, shortestMs / 6);
    // A call that runs keeps the process alive, not its lease.
    timer.unref();
  }

  async function renew(key: string | undefined, leases: readonly number[]): Promise<void> {
    const sentAtMs = performance.now();
    try {
      const request = { bucket, asker, terms: known.terms, key, keyLimits: keyLimits(key), leases };
      const lost = new Set(await store.renew(request));
      for (const lease of leases) {
        const own = kept.get(lease);
        if (own === undefined) continue;
        if (lost.has(lease)) own.ending.abort(new LeaseLostError(bucket));
        else own.endsAtMs = sentAtMs + own.lastsMs;
      }
    } catch (error) {
      // It is tried again before the lease ends; then the call is told.
      logger.warn({ bucket, reason: String(error) }, "Leases could not be renewed.");
    }
  }

  function giveBack(): void {
    isReturnDue = false;
    for (const [key, leases] of returned) {
      while (leases.length > 0) {
        const some = leases.splice(0, MOST_AT_ONCE);
        const request = {
          bucket,
          asker,
          terms: known.terms,
          key,
          keyLimits: keyLimits(key),
          leases: some,
        };
        const giving = store
          .release(request)
          // What cannot be given back comes free when it ends.
          .catch((error: unknown) =>
            logger.warn({ bucket, reason: String(error) }, "Leases could not be given back."),
          )
          .finally(() => returning.delete(giving));
        returning.add(giving);
      }
    }
    returned.clear();
  }

  return {
    keep(lease, key, atMs) {
      const lasts = lastsMs(key);
      const ending = new AbortController();
      if (lasts < shortestMs) {
        shortestMs = lasts;
        clearTimeout(timer);
        timer = undefined;
      }
      kept.set(lease, { key, lastsMs: lasts, endsAtMs: atMs + lasts, ending });
      setTimer();
    },
    release(lease, key) {
      kept.delete(lease);
      returned.set(key, [...(returned.get(key) ?? []), lease]);
      if (isReturnDue) return;
      isReturnDue = true;
      queueMicrotask(giveBack);
    },
    signalOf(lease) {
      return kept.get(lease)?.ending.signal ?? AbortSignal.abort(new LeaseLostError(bucket));
    },
    async settled() {
      if (isReturnDue) giveBack();
      await Promise.all(returning);
    },
    close() {
      clearTimeout(timer);
      kept.clear();
    },
  };
}
