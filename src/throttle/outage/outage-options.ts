import * as z from "zod";

/** What becomes of a bucket's calls while Redis does not answer. */
export type OnStoreDown =
  | "wait"
  | "refuse"
  | "open"
  /** So much of this process's part of the rate, above 0 and up to 1. */
  | { readonly local: number };

/** How a bucket starts whose state Redis has lost. */
export type OnStateLost = "empty" | "full";

const LOCAL_ERROR = { error: "give a part of this process's rate, above 0 and up to 1" };
const LOCAL = z.strictObject({
  local: z.number(LOCAL_ERROR).min(0.001, LOCAL_ERROR).max(1, LOCAL_ERROR),
});

/** @internal */
export const ON_STORE_DOWN: z.ZodType<OnStoreDown> = z.unknown().transform((given, context) => {
  if (given === "wait" || given === "refuse" || given === "open") return given;
  const read = LOCAL.safeParse(given);
  if (read.success) return read.data;
  const message =
    'give "wait", "refuse", "open", or { local: 0.5 } with a number above 0 and up to 1';
  context.addIssue({ code: "custom", message });
  return z.NEVER;
});

/** @internal */
export const ON_STATE_LOST: z.ZodType<OnStateLost> = z.enum(["empty", "full"], {
  error: 'give "empty" or "full"',
});
