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
  wholeAtUs: number,
  gapUs: number,
  gapUntilUs: number,
  ...standings: readonly (readonly number[])[],
];

export const bucketPeek: Script<ScopeRequest & Frame, Peeked> = defineScript({
  name: "bucket-peek",
  keys: (input) => frameKeys(input),
  args: (input) => [input.terms.text, packNumbers([input.pinnedUs ?? 0, ...frameNumbers(input)])],
  decode: (reply) => {
    const [nowUs, generation, version, text, isOverride, alive, ...others] = reply as Reply;
    const [coolUntilUs, pausedUntilUs, factor, wholeAtUs, gapUs, gapUntilUs, ...standings] = others;
    return {
      nowUs,
      generation,
      version,
      text,
      isOverride: isOverride === 1,
      alive,
      coolUntilUs,
      pausedUntilUs,
      factor,
      wholeAtUs,
      gapUs,
      gapUntilUs,
      standings: standings.map(readStanding),
    };
  },
});
