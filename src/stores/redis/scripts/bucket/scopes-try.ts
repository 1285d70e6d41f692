/**
 * `bucket/scopes-try`: a fast path of `slots-draw`, for tries with several keys or limits per call.
 */
import { ruleOf } from "../../../../core/limits/registry.ts";
import type { Limit, LimitStatus } from "../../../../core/limits/rule.ts";
import {
  AT_ONCE,
  NO_POSITION,
  type Granted,
  type Run,
  type SlotRequest,
} from "../../../../core/store.ts";
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
import type { SlotsDraw } from "./slots-draw.ts";

/** A request in the form in which the script receives it. */
interface Plan {
  /** Each list of limits, with the keys that have these limits. */
  readonly lists: readonly KeyList[];
  readonly numberOf: ReadonlyMap<string, ListedKey>;
  readonly shapes: readonly Shape[];
  /** The shape number of each slot request, from 1 on. */
  readonly shapeOf: readonly number[];
  /** True if no key appears in more than one slot request. */
  readonly isEachOnce: boolean;
}

interface KeyList {
  readonly limits: readonly Limit[];
  readonly keys: string[];
}

interface ListedKey {
  readonly list: KeyList;
  /** The key's index in its list, from 0 on. */
  readonly index: number;
}

/**
 * The part of a slot request that calls have in common if their costs are equal and their keys have
 * the same limits.
 */
interface Shape {
  readonly lists: readonly KeyList[];
  readonly costs: readonly number[];
}

export type ScopesTry = SlotsDraw & { readonly plan: Plan };

/**
 * Prepares a request for `scopes-try`. The request must be a try on a bucket without its own
 * limits, and all keys must have plain limits. Returns undefined for any other request.
 */
export function planScopesTry(input: SlotsDraw): ScopesTry | undefined {
  if (!isTryOfKeys(input)) return undefined;
  const lists = new Map<readonly Limit[], KeyList>();
  const numberOf = new Map<string, ListedKey>();
  const shapes: Shape[] = [];
  const shapeOf: number[] = [];
  let isEachOnce = true;
  let number = 0;
  for (const { scopes, costs } of input.slotRequests) {
    if (scopes.length === 0) return undefined;
    const own: KeyList[] = [];
    for (const { key, limits } of scopes) {
      let list = lists.get(limits);
      if (list === undefined) {
        if (!limits.every(isPlain)) return undefined;
        lists.set(limits, (list = { limits, keys: [] }));
      }
      const known = numberOf.get(key);
      if (known === undefined) numberOf.set(key, { list, index: list.keys.push(key) - 1 });
      else if (known.list !== list) return undefined;
      else isEachOnce = false;
      own.push(list);
    }
    // Compares with the previous shape first, because most calls of a request have the same shape.
    if (!isShapeOf(own, costs, shapes[number - 1])) {
      number = 1 + shapes.findIndex((shape) => isShapeOf(own, costs, shape));
      if (number === 0) number = shapes.push({ lists: own, costs });
    }
    shapeOf.push(number);
  }
  const plan = { lists: [...lists.values()], numberOf, shapes, shapeOf, isEachOnce };
  return { plan, ...input };
}

function isShapeOf(
  lists: readonly KeyList[],
  costs: readonly number[],
  shape: Shape | undefined,
): boolean {
  return (
    shape !== undefined &&
    lists.length === shape.lists.length &&
    lists.every((list, index) => list === shape.lists[index]) &&
    (costs === shape.costs || costs.every((cost, index) => cost === shape.costs[index]))
  );
}

export const scopesTry: PlainTryScript<ScopesTry> = definePlainTry({
  name: "bucket/scopes-try",
  keys: ({ prefix, bucket, plan }) =>
    stateKeys(
      prefix,
      bucket,
      plan.lists.flatMap(({ keys }) => keys),
    ),
  addNumbers,
  readAll,
});

function addNumbers(numbers: number[], { slotRequests, plan }: ScopesTry): void {
  const { lists, numberOf, shapes, shapeOf } = plan;
  const firstOf = new Map<KeyList, number>();
  let first = 1;
  numbers.push(lists.length);
  for (const list of lists) {
    numbers.push(list.limits.length);
    for (const { kind, count, periodUs, capacity } of list.limits) {
      numbers.push(ruleOf(kind).code, count, periodUs, capacity);
    }
    numbers.push(list.keys.length);
    firstOf.set(list, first);
    first += list.keys.length;
  }
  numbers.push(shapes.length);
  for (const shape of shapes) {
    numbers.push(shape.lists.length);
    let after = 0;
    for (const list of shape.lists) {
      const { length } = list.limits;
      numbers.push(lists.indexOf(list) + 1, ...shape.costs.slice(after, after + length));
      after += length;
    }
  }
  numbers.push(slotRequests.length);
  for (const [index, { wanted, scopes }] of slotRequests.entries()) {
    numbers.push(wanted, shapeOf[index]!);
    for (const { key } of scopes) {
      const listed = numberOf.get(key)!;
      numbers.push(firstOf.get(listed.list)! + listed.index);
    }
  }
}

/**
 * Reads the results of the slot requests. The reported remaining room of a limit is the room after
 * all slot requests.
 */
function readAll({ slotRequests, plan }: ScopesTry, numberAt: PackedReply): Granted[] {
  const nowUs = numberAt(0);
  const starts: number[] = [];
  /**
   * The position of each key's last usage in the reply. Filled only if several slot requests have
   * the same key.
   */
  const lastOf = new Map<ListedKey, number>();
  let at = REPLY_HEAD;
  for (const { scopes, costs } of slotRequests) {
    starts.push(at);
    let from = at + 1;
    at += 1 + costs.length;
    if (plan.isEachOnce) continue;
    for (const { key, limits } of scopes) {
      lastOf.set(plan.numberOf.get(key)!, from);
      from += limits.length;
    }
  }
  return slotRequests.map((slotRequest, index) => {
    const from = starts[index]! + 1;
    const count = numberAt(from - 1);
    const used = slotRequest.costs.map((_, limit) => numberAt(from + limit));
    const statuses = statusesOf(slotRequest, used, nowUs);
    const granted = {
      ...NOTHING,
      run: runOf(slotRequest, count, { nowUs, used: used[0]! }),
      positions: slotRequest.scopes.map(() => NO_POSITION),
      statuses: plan.isEachOnce ? statuses : statusesOf(slotRequest, usedLast(slotRequest), nowUs),
    };
    return count === slotRequest.wanted
      ? granted
      : { ...granted, ...heldBy(slotRequest, statuses) };
  });

  function usedLast({ scopes }: SlotRequest): number[] {
    return scopes.flatMap(({ key, limits }) => {
      const from = lastOf.get(plan.numberOf.get(key)!)!;
      return limits.map((_, limit) => numberAt(from + limit));
    });
  }
}

/** Returns the run of granted slots. `used` is the usage of the first limit after these calls. */
function runOf(
  { scopes, costs }: SlotRequest,
  count: number,
  { nowUs, used }: { readonly nowUs: number; readonly used: number },
): Run | undefined {
  if (count === 0) return undefined;
  const [{ kind, count: drain, periodUs, capacity }] = scopes[0]!.limits as [Limit];
  const step = costs[0]! * periodUs;
  const isAlone = costs.length === 1 && ruleOf(kind).doesSpace === true;
  const excess = isAlone ? used - (count - 1) * step - capacity * periodUs : AT_ONCE;
  return { count, atUs: nowUs, excess, step, drain };
}

function statusesOf(
  { scopes, costs }: SlotRequest,
  used: readonly number[],
  nowUs: number,
): readonly LimitStatus[] {
  const statuses: LimitStatus[] = [];
  for (const { limits } of scopes) {
    for (const limit of limits) {
      const at = statuses.length;
      statuses.push(ruleOf(limit.kind).plainStatus!(limit, used[at]!, costs[at]!, nowUs));
    }
  }
  return statuses;
}

/**
 * Returns the limit that delays a call the longest. Among equal delays, the narrowest key counts,
 * and then the first of its limits.
 */
function heldBy(
  { scopes }: SlotRequest,
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
