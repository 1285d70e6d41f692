/** `bucket/scopes-try`: a fast path of `slots-draw`, for tries of calls that have several keys or limits. */
import { ruleOf } from "../../../core/limits/registry.ts";
import type { Limit, LimitStatus } from "../../../core/limits/rule.ts";
import { AT_ONCE, NO_PLACE, type Granted, type Run, type Wish } from "../../../core/store.ts";
import { stateKeys } from "../keys.ts";
import {
  definePlainTry,
  isPlain,
  isTryOfKeys,
  NOTHING,
  REPLY_HEAD,
  type PackedReply,
  type PlainTryScript,
} from "./plain-try.ts";
import { keysOf, type SlotsDraw } from "./slots-draw.ts";

/**
 * Whether `scopes-try` can serve a request: a try of a bucket without limits, for calls whose keys all have plain ones.
 */
export function isScopesTry(input: SlotsDraw): boolean {
  if (!isTryOfKeys(input)) return false;
  const seen = new Map<string, readonly Limit[]>();
  return input.wishes.every(
    ({ scopes }) =>
      scopes.length > 0 &&
      scopes.every(({ key, limits }) => {
        const before = seen.get(key) ?? limits;
        seen.set(key, limits);
        return before === limits && limits.every(isPlain);
      }),
  );
}

export const scopesTry: PlainTryScript = definePlainTry({
  name: "bucket/scopes-try",
  keys: (input) =>
    stateKeys(
      input.prefix,
      input.bucket,
      keysOf(input).map(({ key }) => key),
    ),
  addNumbers,
  readAll,
});

function addNumbers(numbers: number[], input: SlotsDraw): void {
  const { wishes } = input;
  const keys = keysOf(input);
  const lists = [...new Set(keys.map(({ limits }) => limits))];
  numbers.push(lists.length);
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
}

/** The replies to the wishes. What is left of a limit is told as it is after all of them. */
function readAll(wishes: readonly Wish[], numberAt: PackedReply): Granted[] {
  const nowUs = numberAt(0);
  let at = REPLY_HEAD;
  const usedLast = new Map<string, number[]>();
  const replies = wishes.map(({ scopes }) => {
    const count = numberAt(at++);
    const used = scopes.map(({ key, limits }) => {
      const own = limits.map(() => numberAt(at++));
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
