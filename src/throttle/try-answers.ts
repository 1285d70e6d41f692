import type { Drawn, Granted } from "../core/store.ts";
import { allowed, refused, standingsOf } from "./decisions.ts";
import type { LeaseKeeper } from "./lease-keeper.ts";
import type { Refusals } from "./refusals.ts";
import { DrawnSlot } from "./slot.ts";
import type { Batch } from "./try-batches.ts";

/** What a draw came to for one batch. */
interface Answer {
  readonly granted: Granted;
  readonly reply: Drawn;
  /** The number of the first lease that it was given, if its calls hold any. */
  readonly lease: number;
}

interface Memory {
  readonly leases: LeaseKeeper;
  readonly refusals: Refusals;
  /** Something has changed since the draw was sent: a refusal is true, and not to be remembered. */
  readonly isOutdated: boolean;
}

/** Tells those of a batch what the draw came to for them, and keeps what has to be known later: leases and the refusal. */
export function answerBatch(
  batch: Batch,
  { granted, reply, lease }: Answer,
  { leases, refusals, isOutdated }: Memory,
): void {
  if (granted.refusal !== undefined) return batch.reject(granted.refusal);
  const { group, size } = batch;
  const { nowUs, sentAtMs, generation } = reply;
  const outcome = { group, granted, nowUs };
  const standings = standingsOf(outcome);
  const count = granted.slotsUs.length + (granted.run?.count ?? 0);
  const refusal = count < size ? refused(standings, outcome) : undefined;
  // A lease may come free at any time: nobody can tell when that refusal ends.
  const mayEnd = granted.notBeforeUs === Infinity || isOutdated;
  if (refusal !== undefined && !mayEnd) {
    refusals.keep(group, refusal, (granted.notBeforeUs - nowUs) / 1_000);
  }
  const sinceMs = performance.now();
  const start = { generation, nowMs: sinceMs };
  batch.forEach(({ key, resolve }, index) => {
    if (refusal !== undefined && index >= count) {
      resolve({ ...refusal });
      return;
    }
    const own = group.conditions.hasLeases ? lease + index : 0;
    if (own > 0) leases.keep(own, group, sentAtMs);
    const held = { slotUs: granted.slotsUs[index] ?? nowUs, lease: own };
    const slot = new DrawnSlot({ group, key, sinceMs }, held, start);
    resolve(allowed(standings, group.conditions, { after: count - 1 - index, slot }));
  });
}
