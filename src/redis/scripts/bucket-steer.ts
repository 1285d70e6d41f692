import type { Change, SteerRequest } from "../../core/store.ts";
import { packNumbers } from "../numbers.ts";
import { defineScript, type Script } from "../script.ts";
import { frameKeys, frameNumbers, type Frame } from "./frame.ts";

export const bucketSteer: Script<SteerRequest & Frame, void> = defineScript({
  name: "bucket-steer",
  keys: (input) => frameKeys(input),
  args: (input) => {
    const { terms, prefix, bucket, change, pinnedUs = 0 } = input;
    const numbers = packNumbers([pinnedUs, ...frameNumbers(input), ...changeNumbers(change)]);
    const message = input.key === undefined ? bucket : `${bucket}\n${input.key}`;
    return [terms.text, changesChannel(prefix), message, change.do, numbers];
  },
  decode: () => undefined,
});

/** Where all replicas hear that slots are worthless; the message is a bucket's name, and after a newline a key's. */
export function changesChannel(prefix: string): string {
  return `${prefix}:changes`;
}

function changeNumbers(change: Change): number[] {
  switch (change.do) {
    case "configure":
      return [change.isOverride ? 1 : 0];
    case "pause":
      return [change.forUs];
    case "space":
      return [change.gapUs, change.forUs];
    case "cool":
      return [change.forUs, change.rampUs, change.slotUs];
    case "cut":
      return [change.factor, change.floor, change.recoverUs, change.forUs, change.slotUs];
  }
}
