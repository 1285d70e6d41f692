/**
 * Creates a clock that all processes of this machine share: ms on CLOCK_MONOTONIC. `performance.timeOrigin` is not
 * enough, because it is each process's wall clock at its start. `process.hrtime.bigint()` would be enough, but it
 * allocates memory on each call.
 */
export function createMachineClock(): () => number {
  let offsetMs = 0;
  let bestGapMs = Infinity;
  for (let attempt = 0; attempt < 50; attempt++) {
    const beforeMs = performance.now();
    const machineMs = Number(process.hrtime.bigint()) / 1e6;
    const gapMs = performance.now() - beforeMs;
    // Skips the pair if its gap is larger: the process may have been preempted between the two readings.
    if (gapMs >= bestGapMs) continue;
    bestGapMs = gapMs;
    offsetMs = machineMs - (beforeMs + gapMs / 2);
  }
  return () => performance.now() + offsetMs;
}
