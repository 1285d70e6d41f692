import type { ReturnRequest } from "../../core/store.ts";
import { bucketKeys } from "../bucket-keys.ts";
import { defineScript, type Script } from "../script.ts";

export interface SlotsReturn extends ReturnRequest {
  readonly prefix: string;
  /** Set by tests only; production leaves the time to the server. */
  readonly pinnedUs?: number;
}

export const slotsReturn: Script<SlotsReturn, void> = defineScript({
  name: "slots-return",
  keys: ({ prefix, bucket }) => bucketKeys(prefix, bucket),
  args: ({ asker, cost, generation, slotsUs, pinnedUs }) => [
    asker,
    cost,
    generation,
    pinnedUs ?? "",
    ...slotsUs,
  ],
  decode: () => undefined,
});
