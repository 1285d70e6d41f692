/**
 * A clock that all processes of this machine share: ms on CLOCK_MONOTONIC.
 * `performance.timeOrigin` would not do, since it is each process's wall clock
 * at its start; `process.hrtime.bigint()` would, but costs an allocation a call.
 */
export function createMachineClock(): () => number {
  let offsetMs = 0;
  let bestGapMs = Infinity;
  for (let attempt = 0; attempt < 50; attempt++) {
    const beforeMs = performance.now();
    const machineMs = Number(process.hrtime.bigint()) / 1e6;
    const gapMs = performance.now() - beforeMs;
    // A process that was preempted between the two readings got a wrong pair.
    if (gapMs >= bestGapMs) continue;
    bestGapMs = gapMs;
    offsetMs = machineMs - (beforeMs + gapMs / 2);
  }
  return () => performance.now() + offsetMs;
}
