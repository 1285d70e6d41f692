/** `bucket/slots-try`: a fast path of `slots-draw`, for tries on keys with one plain limit. */
import { ruleOf } from "../../../core/limits/registry.ts";
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
import type { SlotsDraw } from "./slots-draw.ts";

/** The reply has this many numbers before those of the keys, and this many for each key. */
const REPLY_HEAD = 5;
const REPLY_EACH = 3;

/**
 * Whether `slots-try` can serve a request: a try for keys that all have the same single plain limit, each in one wish,
 * of a bucket without limits.
 */
export function isPlainTry({ isTry, horizonUs, terms, wishes }: SlotsDraw): boolean {
  const [first] = wishes;
  if (!isTry || horizonUs > 0 || terms.limits.length > 0) return false;
  const limits = first?.scopes[0]?.limits;
  if (limits?.length !== 1) return false;
  const { kind, align } = limits[0]!;
  if (ruleOf(kind).plainStatus === undefined || align !== undefined) return false;
  const keys = new Set<string>();
  for (const { scopes } of wishes) {
    if (scopes.length !== 1 || scopes[0]!.limits !== limits) return false;
    keys.add(scopes[0]!.key);
  }
  return keys.size === wishes.length;
}

/** The same as `slots-draw` for a plain try; undefined, with nothing written, if the state turns out to be unusual. */
export const slotsTry: Script<SlotsDraw, DrawReply | undefined> = defineScript({
  name: "bucket/slots-try",
  isPacked: true,
  keys: ({ prefix, bucket, wishes }) => {
    const keys = wishes.map(({ scopes }) => scopes[0]!.key);
    return stateKeys(prefix, bucket, keys);
  },
  args: ({ terms, wishes, pinnedUs = 0, drewUs, startsFull = false }) => {
    const { kind, count, periodUs, capacity } = wishes[0]!.scopes[0]!.limits[0]!;
    const head = [pinnedUs, startsFull ? 0 : drewUs, terms.version];
    const numbers = [...head, ruleOf(kind).code, count, periodUs, capacity];
    for (const { wanted, costs } of wishes) numbers.push(wanted, costs[0]!);
    return [terms.text, packNumbers(numbers)];
  },
  decode: (reply, { wishes }) => {
    const packed = reply as Buffer;
    if (packed.length === 0) return undefined;
    const numbers = new DataView(packed.buffer, packed.byteOffset, packed.length);
    const numberAt = (index: number): number => numbers.getFloat64(index * 8, true);
    return {
      nowUs: numberAt(0),
      generation: numberAt(1),
      version: numberAt(2),
      alive: numberAt(3),
      isOverride: numberAt(4) === 1,
      newText: undefined,
      closedUntilUs: 0,
      closedBy: 0,
      granted: wishes.map((wish, index) =>
        readGranted(wish, numberAt, REPLY_HEAD + index * REPLY_EACH),
      ),
      place: NO_PLACE,
    };
  },
});

/** Replies are copies of these: V8 would come to allocate literals among its old objects. */
const NOTHING: Granted = {
  slotsUs: [],
  run: undefined,
  notBeforeUs: 0,
  bindsAt: 0,
  soonestUs: 0,
  places: [NO_PLACE],
  statuses: [],
};
const NO_RUN: Run = { count: 0, atUs: 0, excess: 0, step: 0, drain: 0 };

function readGranted(
  { wanted, costs, scopes }: Wish,
  numberAt: (index: number) => number,
  from: number,
): Granted {
  const limit = scopes[0]!.limits[0]!;
  const cost = costs[0]!;
  const nowUs = numberAt(0);
  const count = numberAt(from);
  const status = ruleOf(limit.kind).plainStatus!(limit, numberAt(from + 2), cost, nowUs);
  const excess = numberAt(from + 1);
  const step = cost * limit.periodUs;
  const isServed = count === wanted;
  return {
    ...NOTHING,
    run:
      count === 0 ? undefined : { ...NO_RUN, count, atUs: nowUs, excess, step, drain: limit.count },
    notBeforeUs: isServed ? 0 : status.nextUs,
    // The key's only limit holds back the rest.
    bindsAt: isServed ? 0 : 1,
    statuses: [status],
  };
}
