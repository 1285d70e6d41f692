/**
 * The shared parts of `slots-try` and `scopes-try`. Both are fast paths of `slots-draw` for tries
 * on plain limits.
 */
import { ruleOf } from "../../../../core/limits/registry.ts";
import type { Limit } from "../../../../core/limits/rule.ts";
import { NO_POSITION, type DrawReply, type Granted } from "../../../../core/store.ts";
import { defineScript, type Script } from "../script.ts";
import type { SlotsDraw } from "./slots-draw.ts";

/** True for a try on a bucket that only has per-key limits. */
export function isTryOfKeys({ isTry, horizonUs, terms }: SlotsDraw): boolean {
  return isTry && horizonUs === 0 && terms.limits.length === 0;
}

/**
 * Returns true if the fast scripts can apply this limit. Its kind must have a plain form, and its
 * window must not be aligned to a clock.
 */
export function isPlain({ kind, align }: Limit): boolean {
  return ruleOf(kind).plainStatus !== undefined && align === undefined;
}

/**
 * Reads one number of the reply, which is an array of numbers. The first `REPLY_HEAD` numbers
 * describe the bucket. The others describe the results of the slot requests.
 */
export type PackedReply = (index: number) => number;
export const REPLY_HEAD = 5;

/**
 * A script that is faster than `slots-draw` and has the same result. It only handles common states.
 * In any other state, it writes nothing, and the result is undefined.
 */
export type PlainTryScript<Input extends SlotsDraw = SlotsDraw> = Script<
  Input,
  DrawReply | undefined
>;

interface PlainTry<Input> extends Pick<Script<Input, unknown>, "name" | "keys"> {
  /** Appends the slot requests and their costs to the numbers of the bucket. */
  readonly addNumbers: (numbers: number[], input: Input) => void;
  /** Reads the result of each slot request. In the reply, these numbers follow those of the bucket. */
  readonly readAll: (input: Input, reply: PackedReply) => Granted[];
}

export function definePlainTry<Input extends SlotsDraw>({
  name,
  keys,
  addNumbers,
  readAll,
}: PlainTry<Input>): PlainTryScript<Input> {
  return defineScript({
    name,
    isPacked: true,
    keys,
    args: (input) => {
      const { terms, pinnedUs = 0, drewUs, startsFull = false } = input;
      const numbers = [pinnedUs, startsFull ? 0 : drewUs, terms.version];
      addNumbers(numbers, input);
      return [terms.text, numbers];
    },
    decode: (reply, input) => {
      const packed = reply as Buffer;
      if (packed.length === 0) return undefined;
      const numbers = new DataView(packed.buffer, packed.byteOffset, packed.length);
      const numberAt: PackedReply = (index) => numbers.getFloat64(index * 8, true);
      return {
        nowUs: numberAt(0),
        generation: numberAt(1),
        version: numberAt(2),
        alive: numberAt(3),
        isOverride: numberAt(4) > 0,
        newText: undefined,
        closedUntilUs: 0,
        closedBy: 0,
        spareLeases: 0,
        granted: readAll(input, numberAt),
        position: NO_POSITION,
      };
    },
  });
}

/**
 * The default result of a slot request. Results are copies of this object. With many object
 * literals instead, V8 would allocate them directly in its old generation.
 */
export const NOTHING: Granted = {
  slotsUs: [],
  run: undefined,
  notBeforeUs: 0,
  bindsAt: 0,
  soonestUs: 0,
  positions: [NO_POSITION],
  statuses: [],
};
