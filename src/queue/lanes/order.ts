/**
 * Decides which keys of a queue are ordered. This is read when a job is enqueued, and stored with the job.
 * `lua/lib/lanes/order.lua` then starts the jobs of such a key one after another.
 */
import * as z from "zod";
import { describeValue, reasonOf } from "../../core/describe.ts";
import { InvalidOptionError } from "../../core/errors.ts";
import { decodeKey, type Key } from "../../core/key-path.ts";
import { readOptions } from "../../core/input/options.ts";
import type { LaneOrder } from "../options.ts";

/**
 * Which keys run their jobs one after another: all (`true`), those for which a function returns true, or by options.
 */
export type Ordered = boolean | OfKey | OrderedOptions;

type OfKey = (key: Key) => boolean;

interface OrderedOptions {
  /** Which keys are ordered. Defaults to all. */
  readonly keys?: OfKey | undefined;
  /**
   * What happens to a key after a dead letter. With `"skip"`, its next job starts. With `"hold"`, its jobs wait until
   * the dead letter was replayed or purged; a replayed job is the next of its key. Defaults to `"skip"`.
   */
  readonly stuck?: "skip" | "hold" | undefined;
}

const REMEDY = "give true, a function of the key, or { keys, stuck }";
const SHAPE = z.object({
  ordered: z.strictObject({
    keys: z
      .custom<OfKey>((value) => typeof value === "function", {
        error: "give a function of the key",
      })
      .optional(),
    stuck: z.enum(["skip", "hold"], { error: 'give "skip" or "hold"' }).optional(),
  }),
});

/**
 * Returns a function that reads the order of a job's key; undefined means that the key is not ordered.
 *
 * @throws {@link InvalidOptionError} when the option has a bad value. The returned function throws it for a job without
 * a key if all keys are ordered, and when the function of the key fails.
 */
export function createOrders(
  queue: string,
  given: Ordered = false,
): (where: string, key: string | undefined) => LaneOrder | undefined {
  const whose = `queue(${JSON.stringify(queue)})`;
  const ordered = readOrdered(whose, given);
  if (ordered === undefined) return () => undefined;
  const { keys, stuck = "skip" } = ordered;
  const order: LaneOrder = stuck === "hold" ? 2 : 1;

  function isOrdered(isOfKey: OfKey, text: string): boolean {
    const key = decodeKey(text);
    try {
      const answer: unknown = isOfKey(key);
      if (typeof answer === "boolean") return answer;
      const remedy = `it returned ${describeValue(answer)} for key ${describeValue(key)}; return true or false`;
      throw new InvalidOptionError({ where: whose, option: "ordered", value: isOfKey, remedy });
    } catch (cause) {
      if (cause instanceof InvalidOptionError) throw cause;
      const remedy = `it threw for key ${describeValue(key)} (${reasonOf(cause)}); return true or false`;
      throw new InvalidOptionError({
        where: whose,
        option: "ordered",
        value: isOfKey,
        remedy,
        cause,
      });
    }
  }

  return (where, key) => {
    if (key === undefined) {
      if (keys !== undefined) return undefined;
      const remedy = "the queue is ordered by key; give one, the same for all jobs of one line";
      throw new InvalidOptionError({ where, option: "key", value: key, remedy });
    }
    return keys === undefined || isOrdered(keys, key) ? order : undefined;
  };
}

function readOrdered(where: string, given: Ordered): OrderedOptions | undefined {
  if (given === false) return undefined;
  if (given === true) return {};
  if (typeof given === "function") return { keys: given };
  if (typeof given !== "object" || given === null || Array.isArray(given)) {
    throw new InvalidOptionError({ where, option: "ordered", value: given, remedy: REMEDY });
  }
  return readOptions(where, SHAPE, { ordered: given }).ordered;
}
