import type { Contender } from "./contender.ts";

export type ContenderName =
  | "sluice"
  | "sluice-pool"
  | "sluice-budget"
  | "bottleneck"
  | "rate-limiter-flexible"
  | "bullmq"
  | "sluice-limits"
  | "sluice-one-level"
  | "sluice-two-levels"
  | "sluice-jobs"
  | "sluice-keyed-jobs"
  | "sluice-10-keys"
  | "sluice-100-keys"
  | "sluice-many-keys"
  | "sluice-fair"
  | "sluice-many-fair"
  | "sluice-llm"
  | "sluice-adaptive"
  | "gradient2"
  | "bottleneck-100-keys"
  | "bottleneck-at-once"
  | "bullmq-jobs"
  | "bullmq-steady";

/** Loads each limiter on first use, so that no replica loads the code of other limiters. */
const LOADERS: Readonly<Record<ContenderName, () => Promise<Contender>>> = {
  sluice: async () => (await import("./sluice.ts")).sluice,
  "sluice-pool": async () => (await import("./sluice.ts")).pool,
  "sluice-budget": async () => (await import("./sluice.ts")).budget,
  bottleneck: async () => (await import("./bottleneck.ts")).bottleneck,
  "rate-limiter-flexible": async () =>
    (await import("./rate-limiter-flexible.ts")).rateLimiterFlexible,
  bullmq: async () => (await import("./bullmq.ts")).bullmq,
  "sluice-limits": async () => (await import("./sluice-limits.ts")).sluiceLimits,
  "sluice-one-level": async () => (await import("./sluice-levels.ts")).oneLevel,
  "sluice-two-levels": async () => (await import("./sluice-levels.ts")).twoLevels,
  "sluice-jobs": async () => (await import("./sluice-jobs.ts")).sluiceJobs,
  "sluice-keyed-jobs": async () => (await import("./sluice-jobs.ts")).sluiceKeyedJobs,
  "sluice-10-keys": async () => (await import("./sluice-keyed.ts")).tenKeys,
  "sluice-100-keys": async () => (await import("./sluice-keyed.ts")).hundredKeys,
  "sluice-many-keys": async () => (await import("./sluice-keyed.ts")).manyKeys,
  "sluice-fair": async () => (await import("./sluice-keyed.ts")).fairKeys,
  "sluice-many-fair": async () => (await import("./sluice-keyed.ts")).manyFairKeys,
  "sluice-llm": async () => (await import("./sluice-llm.ts")).sluiceLlm,
  "sluice-adaptive": async () => (await import("./adaptive.ts")).sluiceAdaptive,
  gradient2: async () => (await import("./adaptive.ts")).gradient2,
  "bottleneck-100-keys": async () => (await import("./bottleneck.ts")).bottleneckWithKeys,
  "bottleneck-at-once": async () => (await import("./bottleneck.ts")).bottleneckAtOnce,
  "bullmq-jobs": async () => (await import("./bullmq.ts")).bullmqWithoutLimiter,
  "bullmq-steady": async () => (await import("./bullmq.ts")).bullmqOnDemand,
};

/** The limiters that the tables compare. */
export const COMPARED = ["sluice", "bottleneck", "rate-limiter-flexible", "bullmq"] as const;
export type Compared = (typeof COMPARED)[number];

export async function loadContender(name: ContenderName): Promise<Contender> {
  return LOADERS[name]();
}
