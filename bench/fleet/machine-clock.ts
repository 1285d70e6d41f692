/**
 * Creates a clock that all processes of this machine share: ms on CLOCK_MONOTONIC.
 * `performance.timeOrigin` is not enough: it is each process's wall clock at its
 * start. `process.hrtime.bigint()` is, but allocates memory on each call.
 */
export function createMachineClock(): () => number {
  let offsetMs = 0;
  let bestGapMs = Infinity;
  for (let attempt = 0; attempt < 50; attempt++) {
    const beforeMs = performance.now();
    const machineMs = Number(process.hrtime.bigint()) / 1e6;
    const gapMs = performance.now() - beforeMs;
    // If the process was preempted between the two readings, the pair is wrong.
    if (gapMs >= bestGapMs) continue;
    bestGapMs = gapMs;
    offsetMs = machineMs - (beforeMs + gapMs / 2);
  }
  return () => performance.now() + offsetMs;
}
