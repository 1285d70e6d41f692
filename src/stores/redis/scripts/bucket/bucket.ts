import {
  SOURCES,
  type Change,
  type LimitedKey,
  type Peeked,
  type ScopesRequest,
  type ShadowCounts,
  type Steered,
  type SteerRequest,
} from "../../../../core/store.ts";
import { frameKeys, frameNumbers, packNumbers, shadowsNumbers, type Frame } from "./frame.ts";
import { defineScript, type Script } from "../script.ts";
import { readStatus } from "./slots-draw.ts";

type Reply = readonly [
  nowUs: number,
  generation: number,
  version: number,
  text: string,
  source: number,
  alive: number,
  coolUntilUs: number,
  pausedUntilUs: number,
  factor: number,
  wholeAtUs: number,
  gapUs: number,
  gapUntilUs: number,
  shadows: readonly number[],
  ...statuses: readonly (readonly number[])[],
];

export const bucketPeek: Script<ScopesRequest & Frame, Peeked> = defineScript({
  name: "bucket/bucket-peek",
  keys: (input) => frameKeys(input, input.terms.shadows),
  args: (input) => {
    const { terms, pinnedUs = 0 } = input;
    const numbers = [pinnedUs, ...frameNumbers(input), ...shadowsNumbers(terms)];
    return [terms.text, packNumbers(numbers)];
  },
  decode: (reply) => {
    const [nowUs, generation, version, text, source, alive, ...others] = reply as Reply;
    const [coolUntilUs, pausedUntilUs, factor, wholeAtUs, gapUs, gapUntilUs, ...more] = others;
    const [shadows, ...statuses] = more;
    return {
      nowUs,
      generation,
      version,
      text,
      source: SOURCES[source]!,
      alive,
      coolUntilUs,
      pausedUntilUs,
      factor,
      wholeAtUs,
      gapUs,
      gapUntilUs,
      statuses: statuses.map(readStatus),
      shadows: readCounts(shadows),
    };
  },
});

function readCounts(numbers: readonly number[]): ShadowCounts[] {
  return Array.from({ length: numbers.length / 4 }, (_, index) => {
    const [calls, waited, refused, longestUs] = numbers.slice(index * 4);
    return { calls: calls!, waited: waited!, refused: refused!, longestUs: longestUs! };
  });
}

export const bucketSteer: Script<SteerRequest & Frame, Steered> = defineScript({
  name: "bucket/bucket-steer",
  keys: (input) => frameKeys({ ...input, scopes: steeredOf(input) }),
  args: (input) => {
    const { terms, prefix, bucket, scope, change, generation = 0, pinnedUs = 0 } = input;
    const frame = frameNumbers({ terms, scopes: steeredOf(input) });
    const numbers = packNumbers([pinnedUs, ...frame, generation, ...changeNumbers(change)]);
    const message = scope === undefined ? bucket : `${bucket}\n${scope.key}`;
    return [terms.text, changesChannel(prefix), message, change.do, numbers];
  },
  decode(reply) {
    const [generation, isStale] = reply as readonly [number, number];
    return { generation, isStale: isStale === 1 };
  },
});

function steeredOf({ scope }: SteerRequest): readonly LimitedKey[] {
  return scope === undefined ? [] : [scope];
}

/** The channel on which replicas learn that slots are worthless; a message is a bucket's name, and after a newline a key. */
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
