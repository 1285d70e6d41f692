import { kindOf, type FaultName } from "../../soak/plan/fault-kinds.ts";
import type { Call, Struck } from "../../soak/records.ts";

/** Where the wall clock of these tests is ahead of the machine's. */
const WALL_AHEAD_MS = 1_790_000_000_000;

/** A call that left on its slot and arrived at once. */
export function callAt(ms: number, facts: Partial<Call> = {}): Call {
  return {
    arrivedMs: ms,
    leftMs: ms,
    slotMs: ms + WALL_AHEAD_MS,
    pid: 1,
    job: undefined,
    answer: "ok",
    ...facts,
  };
}

export function momentAt(ms: number) {
  return { ms, wallMs: ms + WALL_AHEAD_MS };
}

export function struckBy(
  name: FaultName,
  { fromMs, toMs, pid }: { fromMs: number; toMs: number; pid?: number },
): Struck {
  const [lengthMs] = kindOf(name).lengthMs;
  return {
    fault: { name, startMs: fromMs, lengthMs, target: 0, strength: 0 },
    began: momentAt(fromMs),
    ended: momentAt(toMs),
    pid,
    rate: undefined,
  };
}
