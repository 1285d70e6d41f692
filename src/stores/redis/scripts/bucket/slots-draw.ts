import { MILLIONTHS } from "../../../../core/limits/budget.ts";
import type { Limit, LimitStatus } from "../../../../core/limits/rule.ts";
import {
  NO_POSITION,
  spacingOf,
  type CrossedBudget,
  type DrawReply,
  type DrawRequest,
  type Granted,
  type LimitedKey,
  type Run,
  type WaitPosition,
  type TurnTags,
  type SlotRequest,
} from "../../../../core/store.ts";
import { limitsNumbers, orInfinity, shadowsNumbers, termsNumbers, type Frame } from "./frame.ts";
import { bucketKeys, fairKey } from "../keys.ts";
import { defineScript, type Script } from "../script.ts";

export type SlotsDraw = DrawRequest & Frame;

/**
 * The numbers of the reply, packed as doubles, and the text of the active policy if it differs from the
 * caller's. Then the numbers about budgets, if there is something to report. If keys take turns, also the
 * tags of the next calls.
 */
type Reply = readonly [numbers: Buffer, newText: Buffer, notes?: Buffer, tags?: Buffer];

export const slotsDraw: Script<SlotsDraw, DrawReply> = defineScript({
  name: "bucket/slots-draw",
  isPacked: true,
  keys: (input) => {
    const { prefix, bucket, terms } = input;
    const keys = bucketKeys(prefix, bucket, terms.limits, keysOf(input), terms.shadows);
    return isFair(input) ? [...keys, fairKey(prefix, bucket)] : keys;
  },
  args: (input) => {
    const { asker, terms, slotRequests } = input;
    const keys = keysOf(input);
    const names = slotRequests.map(({ name }) => name);
    const turns = isFair(input) ? slotRequests.map((slotRequest) => slotRequest.turns!.names) : [];
    return [
      asker,
      terms.text,
      headNumbers(input, keys),
      slotRequestNumbers(input, keys),
      ...names,
      ...turns,
    ];
  },
  decode: (reply, input) => {
    const { slotRequests } = input;
    const [packed, newText, notes, tags] = reply as Reply;
    const numbers = new Numbers(packed);
    const [nowUs, generation, version, alive, source] = numbers.take(5) as Five;
    const position = readPosition(numbers);
    const [closedUntilUs, closedBy] = [numbers.next(), numbers.next()];
    const spareLeases = numbers.next();
    const isAgreed = newText.length === 0;
    const granted = isAgreed ? readAll(numbers, input) : [];
    const drawn: DrawReply = {
      nowUs,
      generation,
      version,
      alive,
      newText: isAgreed ? undefined : newText.toString(),
      isOverride: source > 0,
      closedUntilUs,
      closedBy,
      spareLeases,
      granted,
      position,
      turnTags: tags && readTags(tags, slotRequests),
    };
    // The reply has empty notes if only tags follow.
    return notes !== undefined && notes.length > 0
      ? { ...drawn, ...readNotes(new Numbers(notes), granted, input) }
      : drawn;
  },
});

/** Reads what a reply reports about budgets, as `notes_of` in `lua/lib/limits/budgets/spent.lua` writes it. */
function readNotes(
  numbers: Numbers,
  granted: readonly Granted[],
  input: SlotsDraw,
): Pick<DrawReply, "granted" | "crossed"> {
  const all = [...granted];
  for (let left = numbers.next(); left > 0; left--) {
    const [index, spent, total, endUs] = numbers.take(4) as [number, number, number, number];
    all[index - 1] = { ...all[index - 1]!, spent: { spent, total, endUs } };
  }
  return { granted: all, crossed: readCrossed(numbers, input.terms.limits, keysOf(input)) };
}

/** Reads the parts of budgets that were reached, as `add_crossed` in `lua/lib/limits/budgets/crossed.lua` writes them. */
export function readCrossed(
  numbers: Numbers,
  shared: readonly Limit[],
  keys: readonly LimitedKey[],
): readonly CrossedBudget[] {
  const crossed: CrossedBudget[] = [];
  while (numbers.left > 0) {
    const [scope, index, part, spent, total, endUs] = numbers.take(6) as Six;
    const own = scope === 0 ? undefined : keys[scope - 1]!;
    const limit = (own?.limits ?? shared)[index - 1]!;
    crossed.push({ key: own?.key, limit, part: part / MILLIONTHS, spent, total, endUs });
  }
  return crossed;
}

type Six = [number, number, number, number, number, number];

/** Whether the keys of these calls take turns. */
function isFair({ slotRequests }: Pick<DrawRequest, "slotRequests">): boolean {
  return slotRequests[0]!.turns !== undefined;
}

function readTags(packed: Buffer, slotRequests: readonly SlotRequest[]): TurnTags {
  const numbers = new Numbers(packed);
  const virtualNow = numbers.next();
  const firstLeases: number[] = [];
  const nextCalls = slotRequests.map(({ turns }) => {
    if (turns === undefined) return [];
    firstLeases.push(numbers.next());
    return numbers.take(turns.weights.length);
  });
  return { virtualNow, nextCalls, firstLeases };
}

type Five = [number, number, number, number, number];

function readPosition(numbers: Numbers): WaitPosition {
  const [turnUs, sinceUs, leaseOrder] = [numbers.next(), numbers.next(), numbers.next()];
  return turnUs === 0 && leaseOrder === 0 ? NO_POSITION : { turnUs, sinceUs, leaseOrder };
}

/**
 * Reads packed doubles in order. This is a class because V8 gives each object literal with a getter a hidden class of
 * its own, and each use of such an object then takes longer than the reading.
 */
export class Numbers {
  readonly #packed: DataView;
  #at = 0;

  constructor({ buffer, byteOffset, length }: Buffer) {
    this.#packed = new DataView(buffer, byteOffset, length);
  }

  /** The number of doubles that were not read yet. */
  get left(): number {
    return (this.#packed.byteLength - this.#at) / 8;
  }

  next(): number {
    const number = this.#packed.getFloat64(this.#at, true);
    this.#at += 8;
    return number;
  }

  take(count: number): number[] {
    const numbers: number[] = [];
    for (let left = count; left > 0; left--) numbers.push(this.next());
    return numbers;
  }
}

function hasPosition({ sinceUs, leaseOrder }: WaitPosition): boolean {
  return sinceUs > 0 || leaseOrder > 0;
}

/**
 * Returns each key once, even if several slot requests have it. A key's number is its index plus 1. The members of a
 * pool are the last keys.
 */
function keysOf({ slotRequests, pool }: Pick<DrawRequest, "slotRequests" | "pool">): LimitedKey[] {
  const keys = new Map<string, LimitedKey>();
  for (const { scopes } of slotRequests) for (const scope of scopes) keys.set(scope.key, scope);
  for (const member of pool?.members ?? []) keys.set(member.key, member);
  return [...keys.values()];
}

function headNumbers(input: SlotsDraw, keys: readonly LimitedKey[]): number[] {
  const { pinnedUs = 0, horizonUs, drewUs, isTry, startsFull = false, lease, tripUs = 0 } = input;
  const { position, terms } = input;
  const how = (isTry ? 1 : 0) + (startsFull ? 2 : 0);
  const own = [position.turnUs, position.sinceUs, position.leaseOrder];
  const numbers = [pinnedUs, horizonUs, drewUs, how, lease, ...own];
  numbers.push(...termsNumbers(terms), keys.length);
  const firstWith = new Map<readonly Limit[], number>();
  for (const [index, { limits }] of keys.entries()) {
    const first = firstWith.get(limits);
    // Sends a reference to the first key with the same limits, because most keys of one level have
    // the same limits.
    if (first !== undefined) numbers.push(-first);
    else {
      firstWith.set(limits, index + 1);
      numbers.push(...limitsNumbers(limits));
    }
  }
  const hasShadows = (terms.shadows?.length ?? 0) > 0;
  const { pool } = input;
  const hasTrip = tripUs > 0 && keys.length > 0;
  const extras =
    (hasShadows ? 1 : 0) +
    (isFair(input) ? 2 : 0) +
    (pool === undefined ? 0 : 4) +
    (hasTrip ? 8 : 0);
  numbers.push(extras, ...shadowsNumbers(terms));
  if (pool !== undefined) {
    numbers.push(pool.members.length, pool.stickyUs);
    for (const { tier, isUsable } of pool.members) numbers.push(tier, isUsable ? 1 : 0);
  }
  if (hasTrip) numbers.push(tripUs);
  return numbers;
}

/**
 * Returns the numbers of the slot requests. Calls form a class if they cost the same under the same
 * limits of the bucket and of their keys. Each class is sent once.
 */
function slotRequestNumbers(
  { slotRequests, pool }: SlotsDraw,
  keys: readonly LimitedKey[],
): number[] {
  const numberOfKey = new Map(keys.map(({ key }, index) => [key, index + 1]));
  const numberOfClass = new Map<readonly number[], number>();
  const classes: number[] = [];
  const numbers: number[] = [];
  for (const slotRequest of slotRequests) {
    const { scopes, wanted, rank, isBounded, sinceUs, nextSinceUs, lastSinceUs } = slotRequest;
    const { costs, shadowCosts = [], reserves = false } = slotRequest;
    let number = numberOfClass.get(costs);
    if (number === undefined) {
      number = numberOfClass.size + 1;
      numberOfClass.set(costs, number);
      classes.push(costs.length, ...costs, ...shadowCosts);
    }
    const how = (isBounded ? 1 : 0) + (reserves ? 2 : 0);
    numbers.push(number, wanted, rank, how, sinceUs, nextSinceUs, lastSinceUs, scopes.length);
    for (const { key, position } of scopes) {
      const keyNumber = numberOfKey.get(key)!;
      if (hasPosition(position)) numbers.push(-keyNumber, position.sinceUs, position.leaseOrder);
      else numbers.push(keyNumber);
    }
  }
  if (slotRequests[0]!.turns !== undefined) numbers.push(slotRequests[0]!.turns.criticalPerMille);
  for (const { turns } of slotRequests) {
    if (turns !== undefined) {
      const { weights, isPending, floorUs } = turns;
      numbers.push(floorUs, isPending ? 1 : 0, weights.length, ...weights.map(inThousandths));
    }
  }
  if (pool !== undefined) numbers.push(...slotRequests.map(({ home = 0 }) => home));
  return [numberOfClass.size, ...classes, slotRequests.length, ...numbers];
}

function inThousandths(weight: number): number {
  return Math.max(1, Math.round(weight * 1_000));
}

type Asked = Pick<SlotsDraw, "slotRequests" | "terms" | "isTry" | "pool">;

/**
 * Reads the results of the slot requests. In the reply to a try, each slot request's statuses
 * follow its result.
 */
function readAll(numbers: Numbers, { slotRequests, terms, isTry, pool }: Asked): Granted[] {
  const read = { limits: terms.limits, hasMembers: pool !== undefined };
  const granted = slotRequests.map((slotRequest) => readGranted(numbers, slotRequest, read));
  if (!isTry) return granted;
  return granted.map((each, index) => {
    const statuses = slotRequests[index]!.costs.map(() => readStatus(numbers.take(3)));
    return { ...each, statuses };
  });
}

function readGranted(
  numbers: Numbers,
  { costs, scopes }: SlotRequest,
  { limits, hasMembers }: { readonly limits: readonly Limit[]; readonly hasMembers: boolean },
): Granted {
  const count = numbers.next();
  if (count === -1) {
    const [notBeforeUs, bindsAt] = [numbers.next(), numbers.next()];
    return {
      slotsUs: NO_NUMBERS,
      members: undefined,
      run: undefined,
      notBeforeUs,
      bindsAt,
      soonestUs: 0,
      positions: scopes.map(({ position }) => position),
      statuses: NO_STATUSES,
    };
  }
  const atUs = numbers.next();
  const excess = numbers.next();
  const notBeforeUs = orInfinity(numbers.next());
  const bindsAt = numbers.next();
  const soonestUs = numbers.next();
  const positions = scopes.map(({ position }) => {
    const isAsBefore = numbers.next() === -1;
    const found = readPosition(numbers);
    return isAsBefore ? position : found;
  });
  const slotsUs = numbers.take(numbers.next());
  const members = hasMembers ? numbers.take(slotsUs.length) : undefined;
  let run: Run | undefined;
  if (count > 0) {
    // The first limit determines the spacing of a run.
    const { step, drain } = spacingOf(limits[0] ?? scopes[0]?.limits[0], costs);
    run = { count, atUs, excess, step, drain };
  }
  const statuses = NO_STATUSES;
  return { slotsUs, members, run, notBeforeUs, bindsAt, soonestUs, positions, statuses };
}

const NO_NUMBERS: readonly number[] = [];
const NO_STATUSES: readonly LimitStatus[] = [];

export function readStatus([remaining, resetUs, nextUs]: readonly number[]): LimitStatus {
  return { remaining: remaining!, resetUs: orInfinity(resetUs!), nextUs: orInfinity(nextUs!) };
}
