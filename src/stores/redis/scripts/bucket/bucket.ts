import {
  GOES_FIRST,
  SOURCES,
  type BudgetsRequest,
  type Change,
  type ChangedBudget,
  type LimitedKey,
  type ScopesRequest,
  type SteerRequest,
} from "../../../../core/store.ts";
import type { LimitStatus } from "../../../../core/limits/rule.ts";
import { adaptiveWindow, frameKeys, frameNumbers, shadowsNumbers, type Frame } from "./frame.ts";
import { shapeScript } from "../script.ts";
import { flag, flat, from, int, oneOf, packNumbers, readerOf, rest, text } from "../shape.ts";
import { readStatus } from "./slots-draw.ts";

const policyText = from(({ terms }: Pick<ScopesRequest, "terms">) => terms.text);

export const bucketPeek = shapeScript({
  name: "bucket/bucket-peek",
  keys: (input: ScopesRequest & Frame) => frameKeys(input, input.terms.shadows),
  args: {
    text: policyText,
    numbers: from((input: ScopesRequest & Frame) =>
      packNumbers([input.pinnedUs ?? 0, ...frameNumbers(input), ...shadowsNumbers(input.terms)]),
    ),
  },
  reply: {
    nowUs: int,
    generation: int,
    version: int,
    text,
    source: oneOf(SOURCES),
    alive: int,
    coolUntilUs: int,
    pausedUntilUs: int,
    factor: int,
    wholeAtUs: int,
    gapUs: int,
    gapUntilUs: int,
    shadows: flat({ calls: int, waited: int, refused: int, longestUs: int }),
    pendingKeys: flat({ names: text, weights: text, sinceUs: int, goesFirst: oneOf(GOES_FIRST) }),
    statuses: rest({ read: (reply) => readPeeked(reply as readonly number[]) }),
  },
});

function readPeeked([remaining, resetUs, nextUs, ...fields]: readonly number[]): LimitStatus {
  const status = readStatus([remaining!, resetUs!, nextUs!]);
  // A budget has one further field, and a limit that adapts has several.
  if (fields.length <= 1) return { ...status, total: fields[0] };
  return { ...status, adaptive: adaptiveWindow(fields) };
}

export const bucketSteer = shapeScript({
  name: "bucket/bucket-steer",
  keys: (input: SteerRequest & Frame) => frameKeys({ ...input, scopes: steeredOf(input) }),
  args: {
    text: policyText,
    channel: from(({ prefix }: Frame) => changesChannel(prefix)),
    message: from(({ bucket, scope }: SteerRequest) =>
      scope === undefined ? bucket : `${bucket}\n${scope.key}`,
    ),
    change: from(({ change }: SteerRequest) => change.do),
    numbers: from((input: SteerRequest & Frame) => {
      const { terms, change, generation = 0, pinnedUs = 0 } = input;
      const frame = frameNumbers({ terms, scopes: steeredOf(input) });
      return packNumbers([pinnedUs, ...frame, generation, ...changeNumbers(change)]);
    }),
  },
  reply: { generation: int, isStale: flag },
});

export const bucketBudgets = shapeScript({
  name: "bucket/budgets",
  keys: (input: BudgetsRequest & Frame) => frameKeys(input),
  args: {
    channel: from(({ prefix }: Frame) => changesChannel(prefix)),
    message: from(({ bucket, scopes }: BudgetsRequest) =>
      scopes.length === 0 ? bucket : `${bucket}\n${scopes.at(-1)!.key}`,
    ),
    change: from(({ change }: BudgetsRequest) => change.do),
    numbers: from((input: BudgetsRequest & Frame) =>
      packNumbers([input.pinnedUs ?? 0, ...frameNumbers(input), ...budgetNumbers(input.change)]),
    ),
  },
  reply: {
    nowUs: int,
    balances: rest({
      read: (reply) => BALANCE.read(reply),
    }),
  },
});

const BALANCE = readerOf({
  scopeNumber: int,
  limitNumber: int,
  startUs: int,
  endUs: int,
  spent: int,
  reserved: int,
  carried: int,
  granted: int,
  total: int,
});

function budgetNumbers(change: BudgetsRequest["change"]): number[] {
  if (change.do === "look") return [];
  if (change.do === "grant") {
    return change.grants.flatMap((each) => [...selectedBy(each), each.amount]);
  }
  return change.balances.flatMap((each) => [
    ...selectedBy(each),
    each.spent,
    each.carried,
    each.granted,
  ]);
}

function selectedBy({ scopeNumber, limitNumber, startUs }: ChangedBudget): number[] {
  return [scopeNumber, limitNumber, startUs];
}

function steeredOf({ scope }: SteerRequest): readonly LimitedKey[] {
  return scope === undefined ? [] : [scope];
}

/**
 * Returns the channel that notifies replicas when their slots become invalid. A message contains a
 * bucket's name. If only one key changed, a newline and the key follow.
 */
export function changesChannel(prefix: string): string {
  return `${prefix}:changes`;
}

function changeNumbers(change: Change): number[] {
  switch (change.do) {
    case "configure":
      return [SOURCES.indexOf(change.source), change.doesYield ? 1 : 0];
    case "pause":
      return [change.durationUs];
    case "space":
      return [change.gapUs, change.durationUs];
    case "cool":
      return [change.durationUs, change.rampUs, change.slotUs];
    case "cut":
      return [change.factor, change.floor, change.recoverUs, change.durationUs, change.slotUs];
  }
}
