import { vi } from "vitest";
import type { WaitTooLongError } from "../../../src/core/errors.ts";
import type { OwnedBucket } from "../../../src/throttle/bucket.ts";
import type { DrawOptions } from "../../../src/throttle/call-options.ts";
import { rejectionOf } from "./rejection.ts";

export const MINUTE_MS = 60_000;

interface Refusal {
  readonly afterMs: number;
  readonly limitedBy: string;
  readonly retryAfterMs: number;
}

/** What a call is told that waits a second at most, and how long that took. */
export async function refusalOf(call: () => Promise<unknown>): Promise<Refusal> {
  const sinceMs = performance.now();
  let afterMs = Infinity;
  const refused = rejectionOf(call()).finally(() => (afterMs = performance.now() - sinceMs));
  await vi.advanceTimersByTimeAsync(1_000);
  const { limitedBy, retryAfterMs } = (await refused) as WaitTooLongError;
  return { afterMs, limitedBy, retryAfterMs };
}

export function refusedIn(bucket: OwnedBucket, options: DrawOptions = {}): Promise<Refusal> {
  return refusalOf(() => bucket.draw({ ...options, maxWaitMs: 1_000 }));
}

/** What of a refusal is as it should be, if that much time is left. */
export function told({ afterMs, limitedBy, retryAfterMs }: Refusal, leftMs: number): object {
  const isRight = Math.abs(retryAfterMs - leftMs) <= 10;
  return { limitedBy, isAtOnce: afterMs <= 10, retryAfterMs: isRight ? "right" : retryAfterMs };
}

export function atOnce(limitedBy: string): object {
  return { limitedBy, isAtOnce: true, retryAfterMs: "right" };
}
