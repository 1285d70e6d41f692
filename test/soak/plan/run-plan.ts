import { setTimeout as pause } from "node:timers/promises";
import { readClocks } from "../clocks.ts";
import type { Moment, RateInForce, Struck } from "../records.ts";
import { PER_SECOND, type Stage } from "../stage/stage.ts";
import { kindOf } from "./fault-kinds.ts";
import type { Plan, PlannedFault } from "./plan.ts";
import { isRateFault, STRIKES } from "./strikes.ts";

/** Carries out a plan; resolves when its minutes are over or the signal aborts. */
export async function runPlan(
  stage: Stage,
  plan: Plan,
  { signal, onStruck }: { signal: AbortSignal; onStruck: (struck: Struck) => void },
): Promise<void> {
  let beganMs = stage.nowMs();
  const untilTime = async (atMs: number): Promise<void> => {
    const leftMs = Math.max(0, atMs - stage.nowMs());
    await pause(leftMs, undefined, { signal }).catch(() => undefined);
  };
  for (const fault of plan.faults) {
    await untilTime(beganMs + fault.startMs);
    if (signal.aborted) return;
    // A worker that takes long to start again delays everything after it.
    const overAtMs = stage.nowMs() + fault.lengthMs;
    onStruck(await strike(stage, plan, { fault, over: () => untilTime(overAtMs) }));
    beganMs += Math.max(0, stage.nowMs() - overAtMs);
  }
  await untilTime(beganMs + plan.minutes * 60_000);
}

interface Timing {
  readonly fault: PlannedFault;
  /** Resolves when the fault should end. */
  readonly over: () => Promise<void>;
}

async function strike(stage: Stage, plan: Plan, { fault, over }: Timing): Promise<Struck> {
  const now = (): Moment => readClocks(stage.nowMs);
  const began = now();
  const pid = pidOf(stage, fault);
  let rate: RateInForce | undefined;
  if (isRateFault(fault.name)) rate = await changeRate(stage, plan, { fault, over, now });
  else {
    const end = await STRIKES[fault.name](stage, fault);
    await over();
    await end();
  }
  return { fault, began, ended: now(), pid, rate };
}

function pidOf({ workers, replicas }: Stage, { name, target }: PlannedFault): number | undefined {
  const { target: kind } = kindOf(name);
  if (kind === undefined) return undefined;
  return (kind === "worker" ? workers : replicas)[target]!.pid;
}

/** Sets a rate from half to twice the bucket's, or pauses the bucket. */
async function changeRate(
  { control: { bucket } }: Stage,
  { burst }: Plan,
  { fault, over, now }: Timing & { readonly now: () => Moment },
): Promise<RateInForce> {
  const isPause = fault.name === "bucket paused";
  const perSecond = isPause ? 0 : Math.round(PER_SECOND * (0.5 + 1.5 * fault.strength));
  const askedAt = now();
  await (isPause ? bucket.pause() : bucket.configure({ rate: `${perSecond}/s`, burst }));
  const heldFrom = now();
  await over();
  const heldTo = now();
  await (isPause ? bucket.resume() : bucket.configure("code"));
  return { perSecond, askedAt, heldFrom, heldTo, goneAt: now() };
}
