import type { Overview } from "../../insight/overview.ts";
import type { Sluice } from "../../sluice/create-sluice.ts";
import type { BucketBrief } from "../../throttle/bucket/facts/status.ts";

interface Snapshot extends Omit<Overview<BucketBrief>, "next"> {
  /** When it was taken, in ms since 1970, by the clock of this process. */
  readonly atMs: number;
}

export interface Snapshots {
  read(): Promise<Snapshot>;
  /** Something was changed: the next look is a new one. */
  forget(): void;
}

const PAGE = 1_000;
const LEAST_AGE_MS = 1_000;
/** A look is kept ten times as long as it took, so that however many ask, a tenth of the time goes into looks at most. */
const AGE_BY_DURATION = 10;
/** Nobody waits for a look that takes longer, once there has been one. */
const QUICK_MS = 500;

export function createSnapshots(sluice: Sluice): Snapshots {
  let looking: Promise<Snapshot> | undefined;
  let last:
    | { readonly snapshot: Snapshot; readonly tookMs: number; goodUntilMs: number }
    | undefined;

  async function look(): Promise<Snapshot> {
    const beganMs = performance.now();
    const first = await sluice.overview({ limit: PAGE, brief: true });
    const buckets = [...first.buckets];
    const unreachable = [...first.unreachable];
    for (let after = first.next; after !== undefined;) {
      const page = await sluice.overview({ limit: PAGE, after, brief: true });
      buckets.push(...page.buckets);
      unreachable.push(...page.unreachable);
      after = page.next;
    }
    const snapshot = { ...first, buckets, unreachable, atMs: Date.now() };
    const tookMs = performance.now() - beganMs;
    const ageMs = Math.max(LEAST_AGE_MS, tookMs * AGE_BY_DURATION);
    last = { snapshot, tookMs, goodUntilMs: performance.now() + ageMs };
    return snapshot;
  }

  /** One look at a time. */
  function lookOnce(): Promise<Snapshot> {
    looking ??= look().finally(() => (looking = undefined));
    return looking;
  }

  return {
    async read() {
      if (last === undefined) return lookOnce();
      const { snapshot, tookMs, goodUntilMs } = last;
      if (performance.now() < goodUntilMs) return snapshot;
      const next = lookOnce();
      if (tookMs < QUICK_MS) return next;
      // Whoever asks next hears of its failure, if it fails again.
      next.catch(() => (last = undefined));
      return snapshot;
    },
    forget() {
      if (last !== undefined) last.goodUntilMs = -Infinity;
    },
  };
}
