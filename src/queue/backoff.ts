import type { BackoffOptions } from "bullmq";

export const DEFAULT_ATTEMPTS = 5;
export const DEFAULT_BASE_MS = 1_000;

export function exponential(baseMs: number = DEFAULT_BASE_MS): BackoffOptions {
  return { type: "exponential", delay: baseMs, jitter: 1 };
}
