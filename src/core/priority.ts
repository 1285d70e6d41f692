/** Who leaves a line first; inside one priority it is first come, first served. */
export type Priority = "critical" | "high" | "normal" | "low";

/** Most urgent first. */
export const PRIORITIES: readonly Priority[] = ["critical", "high", "normal", "low"];

/** How many priorities are more urgent: 0 is the most urgent. */
export const RANKS = Object.fromEntries(
  PRIORITIES.map((priority, rank) => [priority, rank]),
) as Readonly<Record<Priority, number>>;
