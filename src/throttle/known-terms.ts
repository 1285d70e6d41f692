import type { Logger } from "../core/logger.ts";
import { formatPolicy, readPolicyText, type Policy } from "../core/policy/policy.ts";
import type { KnownTerms } from "../core/store.ts";

/** A policy that is in force, and was not known here. */
export interface PolicyNews {
  readonly text: string;
  readonly version: number;
  /** Whether it was configured by hand, over what the code says. */
  readonly isOverride: boolean;
}

/**
 * The newest policy of a bucket that this process knows of. The newest
 * declaration wins everywhere: each draw carries what its process knows, so
 * that even a Redis that lost everything learns it again.
 */
export interface Knowledge {
  readonly policy: Policy;
  /** That of the code. */
  readonly declared: Policy;
  readonly terms: KnownTerms;
  /** The bucket has answered: the policy that this process knows is in force, in this version. */
  confirm(version: number): void;
  /** The policy of this text: that of the code, or what another process has put in force. */
  read(text: string): Policy;
  /** Another policy is in force. */
  learn(news: PolicyNews): void;
}

export function createKnowledge(bucket: string, declared: Policy, logger: Logger): Knowledge {
  let policy = declared;
  let terms = termsOf(declared, 0);
  let hasWarned = false;

  function read(text: string): Policy {
    const known = [policy, declared].find((each) => each.text === text);
    return known ?? readPolicyText(`bucket("${bucket}")`, text, declared);
  }

  function learn({ text, version, isOverride }: PolicyNews): void {
    policy = read(text);
    terms = termsOf(policy, version);
    // What was configured by hand is meant to differ.
    if (hasWarned || isOverride || text === declared.text) return;
    hasWarned = true;
    logger.warn(
      { bucket, declared: formatPolicy(declared), inForce: formatPolicy(policy) },
      `Bucket "${bucket}" was declared here with ${formatPolicy(declared)}, and later elsewhere with ` +
        `${formatPolicy(policy)}. The newest holds for all; give every process the same policy.`,
    );
  }

  return {
    get policy() {
      return policy;
    },
    declared,
    get terms() {
      return terms;
    },
    confirm(version) {
      if (version !== terms.version) terms = termsOf(policy, version);
    },
    read,
    learn,
  };
}

export function termsOf({ limits, shares, text }: Policy, version: number): KnownTerms {
  return { limits, shares, text, version };
}
