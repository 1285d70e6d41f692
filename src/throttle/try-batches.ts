import { NO_PLACE, type Wish } from "../core/store.ts";
import type { TryDecision } from "./bucket.ts";
import type { TryOptions } from "./draw-options.ts";
import type { Group } from "./group.ts";

/**
 * One who asks. A class, and a link of a chain rather than an element of a list: literals that often outlive a
 * collection of garbage V8 comes to make where it keeps what is old, and there each of them keeps all that it leads to
 * long after it is done with. That took a process that asks for many keys half of its tries.
 */
export class Asker {
  readonly key: string | undefined;
  readonly resolve: (decision: TryDecision) => void;
  readonly reject: (reason: unknown) => void;
  next: Asker | undefined;

  constructor(key: string | undefined, resolve: Asker["resolve"], reject: Asker["reject"]) {
    this.key = key;
    this.resolve = resolve;
    this.reject = reject;
  }
}

/** Those who ask for the same, in the order in which they came. */
export class Batch {
  readonly options: TryOptions;
  group: Group;
  size = 1;
  readonly #first: Asker;
  #last: Asker;

  constructor(group: Group, options: TryOptions, first: Asker) {
    this.group = group;
    this.options = options;
    this.#first = first;
    this.#last = first;
  }

  add(asker: Asker): void {
    this.#last.next = asker;
    this.#last = asker;
    this.size += 1;
  }

  forEach(use: (asker: Asker, index: number) => void): void {
    let index = 0;
    for (let asker: Asker | undefined = this.#first; asker !== undefined; asker = asker.next) {
      use(asker, index);
      index += 1;
    }
  }

  reject(reason: unknown): void {
    this.forEach((asker) => asker.reject(reason));
  }
}

/** Wishes are copies of it: see `Asker` for what becomes of literals. */
const NO_WISH: Wish = {
  name: "",
  key: undefined,
  keyLimits: [],
  costs: [],
  wanted: 0,
  rank: 0,
  place: NO_PLACE,
};

export function wishOf({ group: { name, key, conditions }, size: wanted }: Batch): Wish {
  const { keyLimits, costs } = conditions;
  return { ...NO_WISH, name, key, keyLimits, costs, wanted };
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
