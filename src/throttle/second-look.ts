import { reasonOf } from "../core/describe.ts";
import { CostTooLargeError, InvalidOptionError } from "../core/errors.ts";
import type { Basics } from "./basics.ts";
import type { PolicyNews } from "./known-terms.ts";

/**
 * Whether another policy is in force than the one that is known here. A process learns that by its draws; a call
 * that could never pass by what it knows would never come to one. Never rejects.
 */
export type SecondLook = () => Promise<boolean>;

export function createSecondLook(
  { store, bucket, known, logger }: Basics,
  learn: (news: PolicyNews) => void,
): SecondLook {
  let looking: Promise<boolean> | undefined;

  async function look(): Promise<boolean> {
    try {
      const { terms } = known;
      const request = { bucket, terms, key: undefined, keyLimits: [] };
      const { text, version, isOverride } = await store.peek(request);
      // What was declared here and never drawn with yet is newer than what others have declared.
      const isNewer = isOverride || (terms.version > 0 && version > terms.version);
      if (text === known.terms.text || !isNewer) return false;
      learn({ text, version, isOverride });
      return true;
    } catch (error) {
      const reason = reasonOf(error);
      logger.warn({ bucket, reason }, "The policy in force could not be looked up.");
      return false;
    } finally {
      looking = undefined;
    }
  }

  return () => (looking ??= look());
}

/** Whether a call was refused by what the policy says. */
export function isByPolicy(refusal: unknown): refusal is CostTooLargeError | InvalidOptionError {
  return refusal instanceof CostTooLargeError || refusal instanceof InvalidOptionError;
}
