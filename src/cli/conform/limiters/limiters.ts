import type { Limiter } from "./contract.ts";

/** Loads each limiter on first use, so that no replica loads the code of other limiters. */
const LOADERS = {
  sluice: async () => (await import("./sluice.ts")).sluice,
  bottleneck: async () => (await import("./bottleneck.ts")).bottleneck,
  "rate-limiter-flexible": async () =>
    (await import("./rate-limiter-flexible.ts")).rateLimiterFlexible,
  bullmq: async () => (await import("./bullmq.ts")).bullmq,
  "p-throttle": async () => (await import("./p-throttle.ts")).pThrottle,
} as const satisfies Readonly<Record<string, () => Promise<Limiter>>>;

export type LimiterName = keyof typeof LOADERS;

export const PEERS: readonly LimiterName[] = (Object.keys(LOADERS) as LimiterName[]).filter(
  (name) => name !== "sluice",
);

export function loadLimiter(name: LimiterName): Promise<Limiter> {
  return LOADERS[name]();
}
