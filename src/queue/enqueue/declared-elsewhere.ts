/**
 * Each process reports the options of the queues in its code, and other processes open a queue from these options.
 * Functions and schemas cannot be reported, so the other processes reject jobs that need them.
 */
import type { Codec } from "../../core/codec.ts";
import { InvalidOptionError } from "../../core/errors.ts";
import { completeSettings, type QueueSettings } from "../../core/input/queue-settings.ts";
import type { QueueDeclared } from "../../core/stores/insight/store.ts";
import type { OwnedBucket } from "../../throttle/bucket.ts";
import type { EnqueuingParts } from "./enqueue.ts";
import type { Ordered } from "../lanes/lane-options.ts";

export interface Declared extends QueueSettings {
  readonly bucket: Pick<OwnedBucket, "calls">;
  readonly ordered?: Ordered | undefined;
  readonly maxJobBytes?: number | undefined;
  readonly codec?: Codec | readonly Codec[] | undefined;
}

export function declaredOf(declared: Declared): QueueDeclared {
  const { bucket, ordered = false, maxJobBytes, codec = [] } = declared;
  const codecs = "name" in codec ? [codec] : codec;
  return {
    ...(ordered === false ? {} : { ordered: orderOf(ordered) }),
    hasCosts: bucket.calls?.cost !== undefined,
    ...(codecs.length > 0 && { codecs: codecs.map(({ name }) => name) }),
    maxJobBytes,
    ...completeSettings(declared),
  };
}

function orderOf(ordered: Exclude<Ordered, false>): QueueDeclared["ordered"] {
  if (ordered === true) return { stuck: "skip", keys: "all" };
  if (typeof ordered === "function") return { stuck: "skip", keys: "some" };
  const { stuck = "skip", keys } = ordered;
  return { stuck, keys: keys === undefined ? "all" : "some" };
}

/**
 * Rejects a job if only the code of other processes knows the job's cost, has the codecs of the queue, or knows whether
 * the job's key is ordered.
 */
export function createElsewhere(
  queue: string,
  { ordered, hasCosts, codecs = [] }: QueueDeclared,
): Pick<EnqueuingParts<unknown, unknown, unknown>, "orderOf"> &
  Required<Pick<EnqueuingParts<unknown, unknown, unknown>, "checkCodec" | "checkCost">> {
  const isSome = ordered?.keys === "some";
  return {
    orderOf: (where, key) => {
      if (ordered === undefined || (key === undefined && isSome)) return undefined;
      if (key === undefined || isSome) {
        const remedy = isSome
          ? `only the code of other processes knows which keys of queue "${queue}" are ordered; enqueue there`
          : "the queue is ordered by key; give one, the same for all jobs of one line";
        throw new InvalidOptionError({ where, option: "key", value: key, remedy });
      }
      return ordered.stuck === "hold" ? 2 : 1;
    },
    checkCodec: (where) => {
      if (codecs.length === 0) return;
      const remedy = `other processes give queue "${queue}" this codec, and this process does not have it, so it would store the data as clear text; enqueue in a process that gives queue() the codec`;
      throw new InvalidOptionError({ where, option: "codec", value: codecs.join(", "), remedy });
    },
    checkCost: (where, cost) => {
      if (!hasCosts || cost !== undefined) return;
      const remedy = `only the code of other processes knows what jobs of queue "${queue}" cost; give it`;
      throw new InvalidOptionError({ where, option: "cost", value: cost, remedy });
    },
  };
}
