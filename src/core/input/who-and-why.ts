import * as z from "zod";
import { readOptions } from "./options.ts";

export interface WhoAndWhy {
  /**
   * The author of the change: a name or an address. Defaults to the name of the process:
   * `"web-7:4321"`.
   */
  readonly by?: string | undefined;
  /** The reason: `"the provider asked for it"`. */
  readonly reason?: string | undefined;
}

const LONGEST_TEXT = 500;

/** @internal */
export const TEXT: z.ZodType<string> = z
  .string({ error: "give a string" })
  .min(1, { error: "give a name or a reason, or leave it out" })
  .max(LONGEST_TEXT, { error: `give at most ${LONGEST_TEXT} characters` });

/** @internal */
export const WHO_AND_WHY: {
  readonly by: z.ZodOptional<z.ZodType<string>>;
  readonly reason: z.ZodOptional<z.ZodType<string>>;
} = { by: TEXT.optional(), reason: TEXT.optional() };

const BY_HAND = z.strictObject(WHO_AND_WHY);

/**
 * Reads the author and the reason from the last argument of a change.
 *
 * @throws {@link InvalidOptionError} when the argument contains any other option.
 */
export function readWhoAndWhy(where: string, given: unknown = {}): WhoAndWhy {
  return readOptions(where, BY_HAND, given);
}
