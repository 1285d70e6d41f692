/** `bucket/slots-try`: a fast path of `slots-draw`, for tries on keys with one plain limit. */
import { ruleOf } from "../../../../core/limits/registry.ts";
import type { Granted, Run, SlotRequest } from "../../../../core/store.ts";
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

/** The number of numbers per key in the reply. */
const REPLY_EACH = 3;

/**
 * Returns true if `slots-try` can serve a request. The request must be a try on a bucket without
 * its own limits. All its keys must have the same single plain limit, and each key must be in only
 * one slot request.
 */
export function isPlainTry(input: SlotsDraw): boolean {
  const { slotRequests } = input;
  const limits = slotRequests[0]?.scopes[0]?.limits;
  if (!isTryOfKeys(input) || limits?.length !== 1 || !isPlain(limits[0]!)) return false;
  const keys = new Set<string>();
  for (const { scopes } of slotRequests) {
    if (scopes.length !== 1 || scopes[0]!.limits !== limits) return false;
    keys.add(scopes[0]!.key);
  }
  return keys.size === slotRequests.length;
}

export const slotsTry: PlainTryScript = definePlainTry({
  name: "bucket/slots-try",
  keys: ({ prefix, bucket, slotRequests }) => {
    const keys = slotRequests.map(({ scopes }) => scopes[0]!.key);
    return stateKeys(prefix, bucket, keys);
  },
  addNumbers: (numbers, { slotRequests }) => {
    const { kind, count, periodUs, capacity } = slotRequests[0]!.scopes[0]!.limits[0]!;
    numbers.push(ruleOf(kind).code, count, periodUs, capacity);
    for (const { wanted, costs } of slotRequests) numbers.push(wanted, costs[0]!);
  },
  readAll: ({ slotRequests }, numberAt) =>
    slotRequests.map((slotRequest, index) =>
      readGranted(slotRequest, numberAt, REPLY_HEAD + index * REPLY_EACH),
    ),
});

/** The default run. Runs are copies of this object, for the same reason as for `NOTHING`. */
const NO_RUN: Run = { count: 0, atUs: 0, excess: 0, step: 0, drain: 0 };

function readGranted(
  { wanted, costs, scopes }: SlotRequest,
  numberAt: PackedReply,
  at: number,
): Granted {
  const limit = scopes[0]!.limits[0]!;
  const cost = costs[0]!;
  const nowUs = numberAt(0);
  const count = numberAt(at);
  const excess = numberAt(at + 1);
  const status = ruleOf(limit.kind).plainStatus!(limit, numberAt(at + 2), cost, nowUs);
  const step = cost * limit.periodUs;
  const isServed = count === wanted;
  return {
    ...NOTHING,
    run:
      count === 0 ? undefined : { ...NO_RUN, count, atUs: nowUs, excess, step, drain: limit.count },
    notBeforeUs: isServed ? 0 : status.nextUs,
    // The key's only limit delays the calls that got no slot.
    bindsAt: isServed ? 0 : 1,
    statuses: [status],
  };
}
