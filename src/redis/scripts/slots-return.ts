import type { ReturnRequest } from "../../core/store.ts";
import { packNumbers } from "../numbers.ts";
import { defineScript, type Script } from "../script.ts";
import { frameKeys, frameNumbers, type Frame } from "./frame.ts";

export type SlotsReturn = ReturnRequest & Frame;

export const slotsReturn: Script<SlotsReturn, void> = defineScript({
  name: "slots-return",
  keys: (input) => frameKeys({ ...input, ...input.wish }),
  args: (input) => {
    const { asker, terms, place, wish, generation, slotsUs, pinnedUs = 0 } = input;
    const head = [pinnedUs, generation, place.sinceUs, wish.place.sinceUs];
    const frame = frameNumbers({ ...input, ...wish });
    const numbers = packNumbers([...head, ...frame, ...wish.costs, slotsUs.length, ...slotsUs]);
    return [asker, terms.text, place.turnName, wish.name, wish.place.turnName, numbers];
  },
  decode: () => undefined,
});
