import type { Peeked, ScopeRequest } from "../../core/store.ts";
import { packNumbers } from "../numbers.ts";
import { defineScript, type Script } from "../script.ts";
import { frameKeys, frameNumbers, type Frame } from "./frame.ts";
import { readStanding } from "./slots-draw.ts";

type Reply = readonly [
  nowUs: number,
  generation: number,
  version: number,
  text: string,
  isOverride: number,
  alive: number,
  coolUntilUs: number,
  pausedUntilUs: number,
  factor: number,
  ...standings: readonly (readonly number[])[],
];

export const bucketPeek: Script<ScopeRequest & Frame, Peeked> = defineScript({
  name: "bucket-peek",
  keys: (input) => frameKeys(input),
  args: (input) => [input.terms.text, packNumbers([input.pinnedUs ?? 0, ...frameNumbers(input)])],
  decode: (reply) => {
    const [nowUs, generation, version, text, isOverride, alive, cool, paused, factor, ...rest] =
      reply as Reply;
    return {
      nowUs,
      generation,
      version,
      text,
      isOverride: isOverride === 1,
      alive,
      coolUntilUs: cool,
      pausedUntilUs: paused,
      factor,
      standings: rest.map(readStanding),
    };
  },
});
