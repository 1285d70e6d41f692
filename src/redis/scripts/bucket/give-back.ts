/** `bucket/slots-return` gives unused slots back; `bucket/costs-settle` books the true cost of a call. */
import type { ReturnRequest, SettleRequest } from "../../../core/store.ts";
import { frameKeys, frameNumbers, packNumbers, type Frame } from "./frame.ts";
import { defineScript, type Script } from "../script.ts";

export type SlotsReturn = ReturnRequest & Frame;

export const slotsReturn: Script<SlotsReturn, void> = defineScript({
  name: "bucket/slots-return",
  keys: (input) => frameKeys({ ...input, ...input.wish }),
  args: (input) => {
    const { asker, terms, place, wish, generation, slotsUs, pinnedUs = 0 } = input;
    const head = [pinnedUs, generation, place.leaseOrder, wish.place.leaseOrder];
    const frame = frameNumbers({ ...input, ...wish });
    const numbers = packNumbers([...head, ...frame, ...wish.costs, slotsUs.length, ...slotsUs]);
    return [asker, terms.text, place.turnName, wish.name, wish.place.turnName, numbers];
  },
  decode: () => undefined,
});

export const costsSettle: Script<SettleRequest & Frame, void> = defineScript({
  name: "bucket/costs-settle",
  keys: (input) => frameKeys(input),
  args: (input) => {
    const { terms, slotUs, isUnused = false, deltas, pinnedUs = 0 } = input;
    const head = [pinnedUs, slotUs, isUnused ? 1 : 0];
    return [terms.text, packNumbers([...head, ...frameNumbers(input), ...deltas])];
  },
  decode: () => undefined,
});
