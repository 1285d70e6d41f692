import type { SettleRequest } from "../../core/store.ts";
import { packNumbers } from "../numbers.ts";
import { defineScript, type Script } from "../script.ts";
import { frameKeys, frameNumbers, type Frame } from "./frame.ts";

export const costsSettle: Script<SettleRequest & Frame, void> = defineScript({
  name: "costs-settle",
  keys: (input) => frameKeys(input),
  args: (input) => {
    const { terms, slotUs, isUnused = false, deltas, pinnedUs = 0 } = input;
    const head = [pinnedUs, slotUs, isUnused ? 1 : 0];
    return [terms.text, packNumbers([...head, ...frameNumbers(input), ...deltas])];
  },
  decode: () => undefined,
});
