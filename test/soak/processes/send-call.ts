import { createMachineClock } from "../../../bench/fleet/machine-clock.ts";

/** Thrown when a call gets no whole answer from the downstream. */
class CallFailedError extends Error {
  override readonly name = "CallFailedError";
}

/** Calls to this path are answered but not logged. */
export const WARM_UP_PATH = "/warm-up";
/** The longest time for one call. */
const CALL_LIMIT_MS = 2_000;
const nowMs = createMachineClock();

interface CallFacts {
  readonly slotMs?: number;
  readonly job?: number;
  readonly attempt?: number;
  readonly tenant?: string;
}

/** Calls the downstream, and sends along when the call left, its slot and its job. */
export async function sendCall(
  url: string,
  { slotMs, job, attempt, tenant }: CallFacts,
): Promise<Response> {
  const headers: Record<string, string> = {
    "x-left-ms": String(nowMs()),
    "x-pid": String(process.pid),
  };
  if (slotMs !== undefined) headers["x-slot-ms"] = String(slotMs);
  if (job !== undefined) headers["x-job"] = String(job);
  if (attempt !== undefined) headers["x-attempt"] = String(attempt);
  if (tenant !== undefined) headers["x-tenant"] = tenant;
  try {
    const signal = AbortSignal.timeout(CALL_LIMIT_MS);
    const response = await fetch(url, { method: "POST", headers, signal });
    await response.arrayBuffer();
    return response;
  } catch (cause) {
    throw new CallFailedError("the downstream gave no answer", { cause });
  }
}

/** Makes a first call, which takes long because of what it loads and is not to be measured. */
export async function warmUp(url: string): Promise<void> {
  await (await fetch(new URL(WARM_UP_PATH, url))).arrayBuffer();
}
