/** Names by which BullMQ takes an error for a command of its own. */
const CONTROL_NAMES: readonly string[] = [
  "DelayedError",
  "RateLimitError",
  "WaitingError",
  "WaitingChildrenError",
];
const CONTROL_MESSAGE = "bullmq:rateLimitExceeded";

/** What a handler threw, as an error that BullMQ counts as a failed attempt, whatever it was. */
export function asFailure(thrown: unknown): Error {
  const isControl =
    thrown instanceof Error &&
    (CONTROL_NAMES.includes(thrown.name) || thrown.message === CONTROL_MESSAGE);
  if (thrown instanceof Error && !isControl) return thrown;
  return new Error(`The handler threw ${String(thrown)}`, { cause: thrown });
}

/** Whether BullMQ can store a result; one that it cannot would have the work done again. */
export function isStorable(result: unknown): boolean {
  try {
    JSON.stringify(result);
    return true;
  } catch {
    // A cycle, a BigInt, or a toJSON that throws.
    return false;
  }
}
