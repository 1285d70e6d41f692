import type { PauseSeen } from "../../../core/stores/queue/steering.ts";
import { baseOf, type QueueName } from "../keys.ts";
import { endless, laneKeys, readPausedKeys } from "./lanes.ts";
import { defineScript, type Script } from "../script.ts";

/** For 0 ms it ends the pause of a key. */
export const pausesSet: Script<QueueName & PauseSeen, void> = defineScript({
  name: "queue/steer/pauses-set",
  keys: (input) => laneKeys(input),
  args: (input) => {
    const { key = "", forMs } = input;
    return [baseOf(input), key, forMs === Infinity ? -1 : forMs];
  },
  decode: () => undefined,
});

/** The queue's own pause first, then those of keys by when they end. */
export const pausesLook: Script<QueueName, PauseSeen[]> = defineScript({
  name: "queue/steer/pauses-look",
  keys: (input) => [`${baseOf(input)}meta`, `${baseOf(input)}lanes:paused`],
  args: () => [],
  decode: (reply) => {
    const [ofQueue, ...ofKeys] = reply as readonly [number, ...(string | number)[]];
    const pause = { key: undefined, forMs: endless(ofQueue) };
    return [...(ofQueue === 0 ? [] : [pause]), ...readPausedKeys(ofKeys)];
  },
});
