import { getCurrentTest } from "vitest/suite";

/** What was seen of a fault. Names other than these are words that a reader understands. */
export interface Figures {
  /** The longest time without a call or a job; of a connection, until it is left or found again; in ms. */
  readonly recoveryMs?: number;
  /** Slots or calls beyond what the limit allows in any window. */
  readonly extra?: number;
  /** Slots that nobody left on, from the first to the last that was used. */
  readonly wasted?: number;
  /** Confirmed jobs that nobody did. */
  readonly lost?: number;
  /** Attempts beyond one for each job. */
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

/**
 * Prints what was seen of a fault, and notes it with the test, for the table that several rounds come to.
 *
 * @throws RangeError when a figure is no number, as the least of nothing is.
 */
export function reportFigures(fault: string, figures: Figures): void {
  for (const [name, value] of Object.entries(figures)) {
    if (!Number.isFinite(value)) throw new RangeError(`${fault}: ${name} is ${value}`);
  }
  console.log(JSON.stringify({ fault, ...figures }));
  const { meta } = getCurrentTest()!;
  meta.reports = [...(meta.reports ?? []), { fault, figures }];
}
