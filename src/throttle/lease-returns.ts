import { reasonOf } from "../core/describe.ts";
import type { Basics } from "./basics.ts";
import { LeasesByHolder, leasesRequest, type LeaseHolder } from "./leases-request.ts";

/** Gives leases back, all of one tick together. */
export interface LeaseReturns {
  add(lease: number, holder: LeaseHolder): void;
  /** Resolves when all that were given back have left. */
  settled(): Promise<void>;
}

export function createLeaseReturns(basics: Basics): LeaseReturns {
  const { store, bucket, logger } = basics;
  const returning = new Set<Promise<void>>();
  let due: LeasesByHolder | undefined;

  function giveBack(): void {
    const parts = due?.inParts() ?? [];
    due = undefined;
    for (const [holder, leases] of parts) {
      const giving = store
        .release(leasesRequest(basics, holder, leases))
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
