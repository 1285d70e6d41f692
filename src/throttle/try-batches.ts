import type { TryDecision } from "./bucket.ts";
import type { TryOptions } from "./draw-options.ts";
import type { Group } from "./group.ts";

/** Those who ask for the same. */
export interface Batch {
  readonly group: Group;
  readonly options: TryOptions;
  readonly askers: Asker[];
}

export interface Asker {
  readonly key: string | undefined;
  readonly resolve: (decision: TryDecision) => void;
  readonly reject: (reason: unknown) => void;
}

/** One script serves so many batches of keys with one limit, which take it a few µs each … */
export const MOST_TOGETHER = 128;
/** … and so many of others. */
const MOST_OF_OTHERS = 32;

export function byScript(batches: readonly Batch[]): readonly (readonly Batch[])[] {
  const most = batches.every(isLight) ? MOST_TOGETHER : MOST_OF_OTHERS;
  const scripts: (readonly Batch[])[] = [];
  for (let start = 0; start < batches.length; start += most) {
    scripts.push(batches.slice(start, start + most));
  }
  return scripts;
}

function isLight({ group }: Batch): boolean {
  const { limits, shared } = group.conditions;
  return shared.length === 0 && limits.length === 1;
}
