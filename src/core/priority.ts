/** Who leaves a line first; inside one priority it is first come, first served. */
export type Priority = "critical" | "high" | "normal" | "low";

/** Most urgent first. */
export const PRIORITIES: readonly Priority[] = ["critical", "high", "normal", "low"];
