import { getCurrentTest } from "vitest/suite";

/** What was seen of a fault. Names other than these are words that a reader understands. */
export interface Figures {
  /** How long nothing left, or what the test's own words say, in ms. */
  readonly recoveryMs?: number;
  /** Slots or calls beyond what the limit allows in any window. */
  readonly extra?: number;
  /** Slots that nobody left on, the time of the fault included. */
  readonly wasted?: number;
  /** Confirmed jobs that nobody did. */
  readonly lost?: number;
  /** Jobs that were done more than once. */
  readonly again?: number;
  readonly [words: string]: number | undefined;
}

/** What one test reports of a fault, and under which words. */
export interface Report {
  readonly fault: string;
  readonly figures: Figures;
}

declare module "vitest" {
  interface TaskMeta {
    reports?: Report[];
  }
}

/** Prints what was seen of a fault, and notes it with the test, for the table that several rounds come to. */
export function reportFigures(fault: string, figures: Figures): void {
  console.log(JSON.stringify({ fault, ...figures }));
  const { meta } = getCurrentTest()!;
  meta.reports = [...(meta.reports ?? []), { fault, figures }];
}
