import { DEFAULT_BASE_MS } from "./backoff.ts";
import type { Stored } from "./job.ts";
import { isRetryAfter } from "./outcome.ts";

const DEFAULT_MAX_MS = 3_600_000;

/**
 * Says to BullMQ when to try the job at hand again: exponential backoff with full jitter
 * (Brooker, "Exponential Backoff And Jitter", 2015), but not before the downstream asked for it.
 * BullMQ's own has no bound: with a base of 1 s, try 30 would come after 17 years.
 */
export function setRetryDelay(
  { opts, attemptsMade }: Pick<Stored<unknown>, "opts" | "attemptsMade">,
  thrown: unknown,
  askedMs: number | undefined,
): void {
  const { sluice: { maxBackoffMs = DEFAULT_MAX_MS } = {}, backoff } =
    opts as Stored<unknown>["opts"];
  const baseMs = (typeof backoff === "object" && backoff.delay) || DEFAULT_BASE_MS;
  const ownMs = Math.floor(Math.random() * Math.min(maxBackoffMs, baseMs * 2 ** attemptsMade));
  const delay = isRetryAfter(thrown) ? thrown.ms : Math.max(ownMs, askedMs ?? 0);
  opts.backoff = { type: "fixed", delay: Math.ceil(delay) };
}
