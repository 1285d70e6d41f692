/** All buckets at once, for totals and for pages in any order. One look serves all who ask. */
import type { Overview } from "../../insight/overview.ts";
import type { Sluice } from "../../sluice.ts";

interface Snapshot extends Omit<Overview, "next"> {
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
/** A look that takes long is kept long, so that however many ask, Redis is busy with looks for a small part of the time. */
const AGE_BY_DURATION = 20;

export function createSnapshots(sluice: Sluice): Snapshots {
  let last: { readonly looking: Promise<Snapshot>; goodUntilMs: number } | undefined;

  async function look(): Promise<Snapshot> {
    const first = await sluice.overview({ limit: PAGE });
    const buckets = [...first.buckets];
    const unreachable = [...first.unreachable];
    for (let after = first.next; after !== undefined;) {
      const page = await sluice.overview({ limit: PAGE, after });
      buckets.push(...page.buckets);
      unreachable.push(...page.unreachable);
      after = page.next;
    }
    return { ...first, buckets, unreachable, atMs: Date.now() };
  }

  function begin(): Promise<Snapshot> {
    const beganMs = performance.now();
    const looking = look();
    const taken = { looking, goodUntilMs: Infinity };
    last = taken;
    const onEnd = (): void => {
      const tookMs = performance.now() - beganMs;
      taken.goodUntilMs = performance.now() + Math.max(LEAST_AGE_MS, tookMs * AGE_BY_DURATION);
    };
    // What failed is asked for again at once.
    looking.then(onEnd, () => (taken.goodUntilMs = -Infinity));
    return looking;
  }

  return {
    read() {
      const isGood = last !== undefined && performance.now() < last.goodUntilMs;
      return isGood ? last!.looking : begin();
    },
    forget: () => void (last = undefined),
  };
}
