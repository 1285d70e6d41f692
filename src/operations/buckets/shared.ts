/** Fields, privacy and roles that operations of buckets share. */
import * as z from "zod";
import type { KeyOptions } from "../../throttle/bucket/live-control.ts";
import { NAME } from "../fields.ts";
import { CHANGE, object, STATUS } from "../shapes.ts";

export const BUCKET = { bucket: NAME.describe("The bucket.") };
export const MEMBER_FIELD = z
  .string()
  .optional()
  .describe("The member of a pool, in place of a key.");
export const LOOK = { needs: "view", undoable: false } as const;
export const OF_TARGET = { names: "of the target", data: "never" } as const;
export const IN_SCOPE = { names: "in the scope", data: "never" } as const;

export const STEER = {
  target: "bucket",
  needs: "act",
  privacy: OF_TARGET,
  answers: "The bucket after the change, unless it could not be read.",
  output: object({ "status?": STATUS, "undone?": CHANGE }),
} as const;

type KeyField = string | string[] | Record<string, string> | undefined;

/** Returns the option that a key field stands for: `key`, or `keys` for an object. */
function keyGiven(key: KeyField): KeyOptions {
  if (key === undefined) return {};
  return typeof key === "string" || Array.isArray(key) ? { key } : { keys: key };
}

/** Returns the key or the member whose budgets are meant. */
export function targetOf(given: { readonly key: KeyField; readonly member: string | undefined }) {
  const { key, member } = given;
  return { ...keyGiven(key), ...(member !== undefined && { member }) };
}
