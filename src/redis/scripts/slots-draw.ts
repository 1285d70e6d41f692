import type { DrawReply, DrawRequest } from "../../core/store.ts";
import { bucketKeys } from "../bucket-keys.ts";
import { defineScript, type Script } from "../script.ts";

export interface SlotsDraw extends DrawRequest {
  readonly prefix: string;
  /** Set by tests only; production leaves the time to the server. */
  readonly pinnedUs?: number;
}

type Reply = readonly [
  nowUs: number,
  generation: number,
  count: number,
  periodUs: number,
  burst: number,
  granted: number,
  excess: number,
  turnUs: number,
  ...recycledUs: number[],
];

export const slotsDraw: Script<SlotsDraw, DrawReply> = defineScript({
  name: "slots-draw",
  keys: ({ prefix, bucket }) => bucketKeys(prefix, bucket),
  args: ({ asker, wanted, cost, horizonUs, policy, generation, drewUs, turnUs, pinnedUs }) => [
    asker,
    wanted,
    cost,
    horizonUs,
    policy.count,
    policy.periodUs,
    policy.burst,
    generation,
    drewUs,
    turnUs,
    pinnedUs ?? "",
  ],
  decode: (reply) => {
    const [nowUs, generation, count, periodUs, burst, granted, excess, turnUs, ...recycledUs] =
      reply as Reply;
    const policy = { count, periodUs, burst };
    return { nowUs, policy, generation, recycledUs, granted, excess, turnUs };
  },
});
