/** `bucket/scopes-try`: a fast path of `slots-draw`, for tries of calls that have several keys or limits. */
import { ruleOf } from "../../../core/limits/registry.ts";
import type { Limit, LimitStatus } from "../../../core/limits/rule.ts";
import {
  NO_PLACE,
  type DrawReply,
  type Granted,
  type Run,
  type Wish,
} from "../../../core/store.ts";
import { packNumbers } from "./frame.ts";
import { stateKeys } from "../keys.ts";
import { defineScript, type Script } from "../script.ts";
import { keysOf, type SlotsDraw } from "./slots-draw.ts";

/**
 * Whether `scopes-try` can serve a request: a try of a bucket without limits, for calls whose keys all have plain ones.
 */
export function isScopesTry({ isTry, horizonUs, terms, wishes }: SlotsDraw): boolean {
  if (!isTry || horizonUs > 0 || terms.limits.length > 0) return false;
  const seen = new Map<string, readonly Limit[]>();
  return wishes.every(
    ({ scopes }) =>
      scopes.length > 0 &&
      scopes.every(({ key, limits }) => {
        const before = seen.get(key) ?? limits;
        seen.set(key, limits);
        return before === limits && limits.every(isPlain);
      }),
  );
}

/** Whether the script knows such a limit. */
function isPlain({ kind, align }: Limit): boolean {
  return ruleOf(kind).plainStatus !== undefined && align === undefined;
}

/** The same as `slots-draw`; undefined, with nothing written, if the state turns out to be unusual. */
export const scopesTry: Script<SlotsDraw, DrawReply | undefined> = defineScript({
  name: "bucket/scopes-try",
  isPacked: true,
  keys: (input) =>
    stateKeys(
      input.prefix,
      input.bucket,
      keysOf(input).map(({ key }) => key),
    ),
  args: (input) => [input.terms.text, packNumbers(numbersOf(input))],
  decode: (reply, { wishes }) => {
    const packed = reply as Buffer;
    if (packed.length === 0) return undefined;
    const numbers = new DataView(packed.buffer, packed.byteOffset, packed.length);
    let at = 0;
    const next = (): number => {
      at += 8;
      return numbers.getFloat64(at - 8, true);
    };
    const nowUs = next();
    const head = { nowUs, generation: next(), version: next(), alive: next() };
    const isOverride = next() === 1;
    const granted = readAll(wishes, nowUs, next);
    const open = { closedUntilUs: 0, closedBy: 0 };
    return { ...head, isOverride, newText: undefined, ...open, granted, place: NO_PLACE };
  },
});

function numbersOf(input: SlotsDraw): number[] {
  const { terms, wishes, pinnedUs = 0, drewUs, startsFull = false } = input;
  const keys = keysOf(input);
  const lists = [...new Set(keys.map(({ limits }) => limits))];
  const numbers = [pinnedUs, startsFull ? 0 : drewUs, terms.version, lists.length];
  for (const limits of lists) {
    numbers.push(limits.length);
    for (const { kind, count, periodUs, capacity } of limits) {
      numbers.push(ruleOf(kind).code, count, periodUs, capacity);
    }
  }
  const numberOf = new Map<string, number>();
  for (const [index, { key, limits }] of keys.entries()) {
    numberOf.set(key, index + 1);
    numbers.push(lists.indexOf(limits) + 1);
  }
  numbers.push(wishes.length);
  for (const { wanted, scopes, costs } of wishes) {
    numbers.push(wanted, scopes.length);
    for (const { key } of scopes) numbers.push(numberOf.get(key)!);
    numbers.push(...costs);
  }
  return numbers;
}

/** The replies to the wishes. What is left of a limit is told as it is after all of them. */
function readAll(wishes: readonly Wish[], nowUs: number, next: () => number): Granted[] {
  const usedLast = new Map<string, number[]>();
  const replies = wishes.map(({ scopes }) => {
    const count = next();
    const used = scopes.map(({ key, limits }) => {
      const own = limits.map(() => next());
      usedLast.set(key, own);
      return own;
    });
    return { count, used };
  });
  return wishes.map((wish, index) => {
    const { count, used } = replies[index]!;
    const last = wish.scopes.map(({ key }) => usedLast.get(key)!);
    const isServed = count === wish.wanted;
    return {
      ...NOTHING,
      run: runOf(wish, count, { nowUs, used: used[0]![0]! }),
      ...(!isServed && heldBy(wish, statusesOf(wish, used, nowUs))),
      places: wish.scopes.map(() => NO_PLACE),
      statuses: statusesOf(wish, last, nowUs),
    };
  });
}

/** Replies are copies of it: V8 would come to allocate literals among its old objects. */
const NOTHING: Granted = {
  slotsUs: [],
  run: undefined,
  notBeforeUs: 0,
  bindsAt: 0,
  soonestUs: 0,
  places: [],
  statuses: [],
};
/** An excess so low that all calls of a run start at its first moment. */
const AT_ONCE = -(2 ** 52);

/** `used` is what was used of the first limit after these calls. */
function runOf(
  { scopes, costs }: Wish,
  count: number,
  { nowUs, used }: { readonly nowUs: number; readonly used: number },
): Run | undefined {
  if (count === 0) return undefined;
  const [{ kind, count: drain, periodUs, capacity }] = scopes[0]!.limits as [Limit];
  const step = costs[0]! * periodUs;
  const isAlone = costs.length === 1 && ruleOf(kind).excess !== undefined;
  const excess = isAlone ? used - (count - 1) * step - capacity * periodUs : AT_ONCE;
  return { count, atUs: nowUs, excess, step, drain };
}

function statusesOf(
  { scopes, costs }: Wish,
  used: readonly (readonly number[])[],
  nowUs: number,
): readonly LimitStatus[] {
  const statuses: LimitStatus[] = [];
  for (const [index, { limits }] of scopes.entries()) {
    for (const [at, limit] of limits.entries()) {
      const cost = costs[statuses.length]!;
      statuses.push(ruleOf(limit.kind).plainStatus!(limit, used[index]![at]!, cost, nowUs));
    }
  }
  return statuses;
}

/** Which limit holds a call back for the longest; of those alike the narrowest key's, and of its limits the first. */
function heldBy(
  { scopes }: Wish,
  statuses: readonly LimitStatus[],
): Pick<Granted, "notBeforeUs" | "bindsAt"> {
  let held = { notBeforeUs: 0, bindsAt: 0 };
  let after = statuses.length;
  for (const { limits } of scopes.toReversed()) {
    after -= limits.length;
    let own = { notBeforeUs: 0, bindsAt: 0 };
    for (const index of limits.keys()) {
      const { nextUs } = statuses[after + index]!;
      if (nextUs > own.notBeforeUs) own = { notBeforeUs: nextUs, bindsAt: after + index + 1 };
    }
    if (own.notBeforeUs > held.notBeforeUs) held = own;
  }
  return held;
}
