/** `bucket/slots-draw`: draws slots for all wishes of one asker. */
import type { Limit } from "../../../core/limits/rule.ts";
import type { LimitStatus } from "../../../core/limits/rule.ts";
import {
  spacingOf,
  type DrawReply,
  type DrawRequest,
  type Granted,
  type LimitedKey,
  type Place,
  type Wish,
} from "../../../core/store.ts";
import {
  limitsNumbers,
  orInfinity,
  packNumbers,
  shadowsNumbers,
  termsNumbers,
  type Frame,
} from "./frame.ts";
import { bucketKeys } from "../keys.ts";
import { defineScript, type Script } from "../script.ts";

export type SlotsDraw = DrawRequest & Frame;

type Reply = readonly [
  nowUs: number,
  generation: number,
  version: number,
  alive: number,
  newText: string,
  turnUs: number,
  turnName: string,
  leaseOrder: number,
  source: number,
  closedUntilUs: number,
  closedBy: number,
  ...rest: readonly (readonly (number | string)[])[],
];

export const slotsDraw: Script<SlotsDraw, DrawReply> = defineScript({
  name: "bucket/slots-draw",
  keys: (input) => {
    const { prefix, bucket, terms } = input;
    return bucketKeys(prefix, bucket, terms.limits, keysOf(input), terms.shadows);
  },
  args: (input) => {
    const { asker, terms, place, wishes } = input;
    const names: string[] = [];
    for (const { name, scopes } of wishes) {
      names.push(name);
      for (const scope of scopes) names.push(scope.place.turnName);
    }
    return [asker, terms.text, place.turnName, packNumbers(numbersOf(input)), ...names];
  },
  decode: (reply, { wishes, terms }) => {
    const [nowUs, generation, version, alive, newText, ...more] = reply as Reply;
    const [turnUs, turnName, leaseOrder, source, closedUntilUs, closedBy, ...rest] = more;
    return {
      nowUs,
      generation,
      version,
      alive,
      newText: newText === "" ? undefined : newText,
      isOverride: source > 0,
      closedUntilUs,
      closedBy,
      granted: readAll(rest, wishes, terms.limits),
      place: { turnUs, turnName, leaseOrder },
    };
  },
});

/** Each key once, even if several wishes are for it. */
function keysOf({ wishes }: Pick<DrawRequest, "wishes">): LimitedKey[] {
  const keys = new Map<string, LimitedKey>();
  for (const { scopes } of wishes) for (const scope of scopes) keys.set(scope.key, scope);
  return [...keys.values()];
}

function numbersOf(input: SlotsDraw): number[] {
  const { pinnedUs = 0, horizonUs, drewUs, isTry, startsFull = false, lease } = input;
  const { place, terms, wishes } = input;
  const how = (isTry ? 1 : 0) + (startsFull ? 2 : 0);
  const head = [pinnedUs, horizonUs, drewUs, how, lease, place.turnUs, place.leaseOrder];
  const keys = keysOf(input);
  const numbers = [...head, ...termsNumbers(terms), keys.length];
  const numberOf = new Map<string, number>();
  const firstWith = new Map<readonly Limit[], number>();
  for (const [index, { key, limits }] of keys.entries()) {
    const first = firstWith.get(limits);
    numberOf.set(key, index + 1);
    // Most keys have the same limits as others of their level.
    if (first !== undefined) numbers.push(-first);
    else {
      firstWith.set(limits, index + 1);
      numbers.push(...limitsNumbers(limits));
    }
  }
  numbers.push(wishes.length);
  for (const wish of wishes) {
    const { scopes, wanted, rank, isBounded, sinceUs, nextSinceUs, lastSinceUs, costs } = wish;
    numbers.push(wanted, rank, isBounded ? 1 : 0, sinceUs, nextSinceUs, lastSinceUs, scopes.length);
    for (const { key, place: own } of scopes) {
      numbers.push(numberOf.get(key)!, own.turnUs, own.leaseOrder);
    }
    numbers.push(...costs);
  }
  if (terms.shadows === undefined) return numbers;
  numbers.push(...shadowsNumbers(terms));
  for (const { shadowCosts } of wishes) numbers.push(...shadowCosts!);
  return numbers;
}

/** The reply has what was granted, wish by wish; that to a try has the statuses of each wish after it. */
function readAll(
  rest: readonly (readonly (number | string)[])[],
  wishes: readonly Wish[],
  limits: readonly Limit[],
): Granted[] {
  let next = wishes.length;
  return rest.slice(0, wishes.length).map((reply, index) => {
    const wish = wishes[index]!;
    const own = rest.slice(next, next + wish.costs.length);
    next += own.length;
    const statuses = own.map((status) => readStatus(status as number[]));
    return { statuses, ...readGranted(reply, wish, limits) };
  });
}

type GrantedReply = readonly [
  count: number,
  atUs: number,
  excess: number,
  notBeforeUs: number,
  bindsAt: number,
  soonestUs: number,
  /** Three for each scope, see `Place`; and then the slots. */
  ...placesAndSlots: (number | string)[],
];

function readGranted(
  reply: readonly (number | string)[],
  { costs, scopes }: Wish,
  limits: readonly Limit[],
): Omit<Granted, "statuses"> {
  const [count, atUs, excess, notBeforeUs, bindsAt, soonestUs, ...more] =
    reply as unknown as GrantedReply;
  const places = scopes.map((_, index): Place => {
    const [turnUs, turnName, leaseOrder] = more.slice(3 * index) as [number, string, number];
    return { turnUs, turnName, leaseOrder };
  });
  const slotsUs = more.slice(3 * scopes.length) as number[];
  const granted = { slotsUs, notBeforeUs: orInfinity(notBeforeUs), bindsAt, soonestUs, places };
  if (count === 0) return { run: undefined, ...granted };
  // Runs are spaced by the first limit.
  const spacing = spacingOf(limits[0] ?? scopes[0]?.limits[0], costs);
  return { run: { count, atUs, excess, ...spacing }, ...granted };
}

export function readStatus([remaining, resetUs, nextUs]: readonly number[]): LimitStatus {
  return { remaining: remaining!, resetUs: orInfinity(resetUs!), nextUs: orInfinity(nextUs!) };
}
