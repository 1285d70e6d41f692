import { slotOfRun, type Drawn, type Granted } from "../core/draw-messages.ts";
import { createAlarm } from "./alarm.ts";
import type { TryDecision } from "./bucket.ts";
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
}

/** Tells those of a batch what the draw came to for them, and keeps what has to be known later: leases and the refusal. */
export function answerBatch(
  batch: Batch,
  { granted, reply, lease }: Answer,
  { leases, refusals }: Memory,
): void {
  if (granted.refusal !== undefined) return batch.reject(granted.refusal);
  const { group, size } = batch;
  const { nowUs, sentAtMs, generation } = reply;
  const outcome = { group, granted, nowUs };
  const standings = standingsOf(outcome);
  const count = granted.slotsUs.length + (granted.run?.count ?? 0);
  const refusal = count < size ? refused(standings, outcome) : undefined;
  // A lease may come free at any time: nobody can tell when that refusal ends.
  if (refusal !== undefined && granted.notBeforeUs !== Infinity) refusals.keep(group, refusal);
  const sinceMs = performance.now();
  const decide = (key: string | undefined, index: number, slotUs: number): TryDecision => {
    const held = { slotUs, lease: group.conditions.hasLeases ? lease + index : 0 };
    const slot = new DrawnSlot({ group, key, sinceMs }, held, generation);
    return allowed(standings, group.conditions, { after: count - 1 - index, slot });
  };
  batch.forEach(({ key, resolve }, index) => {
    if (refusal !== undefined && index >= count) {
      resolve({ ...refusal });
      return;
    }
    if (group.conditions.hasLeases) leases.keep(lease + index, group, sentAtMs);
    const slotUs = slotOf(granted, index);
    if (slotUs <= nowUs) return resolve(decide(key, index, slotUs));
    // A moment ahead, behind what was pushed back for keys.
    const alarm = createAlarm(() => resolve(decide(key, index, slotUs)));
    alarm.set(sinceMs + (slotUs - nowUs) / 1_000);
  });
}

function slotOf({ slotsUs, run }: Granted, index: number): number {
  return slotsUs[index] ?? slotOfRun(run!, index);
}
