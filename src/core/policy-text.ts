import { InvalidOptionError } from "./errors.ts";
import { isLimit } from "./is-limit.ts";
import type { Limit } from "./limits/limit.ts";
import type { KeyPolicy } from "./per-key.ts";
import type { Policy } from "./policy.ts";
import { PRIORITIES } from "./priority.ts";

/** What other replicas learn a policy by; what only this process can tell of keys is left out. */
export function writePolicyText(
  limits: readonly Limit[],
  perKey: KeyPolicy | undefined,
  shares: readonly number[],
): string {
  return JSON.stringify({ limits, perKey: perKey?.fixed ?? perKey?.isLocal ?? null, shares });
}

/**
 * Reads what another replica made of its policy; functions of keys stay those of this process.
 *
 * @throws {@link InvalidOptionError} when this process cannot hold to it: calls fail rather than go unlimited.
 */
export function readPolicyText(where: string, text: string, own: Policy): Policy {
  const { limits, perKey, shares } = parsePolicy(text) ?? unreadable(where, text);
  const fixed = Array.isArray(perKey) ? perKey : undefined;
  const fixedPolicy = fixed && { limitsOf: () => fixed, fixed, all: fixed, isLocal: false };
  const keyPolicy = perKey === true ? own.perKey : fixedPolicy;
  if (perKey === true && keyPolicy === undefined) unreadable(where, text);
  return Object.freeze({ limits, perKey: keyPolicy, shares, text });
}

interface PolicyText {
  readonly limits: Limit[];
  readonly perKey: Limit[] | true | null;
  readonly shares: number[];
}

function parsePolicy(text: string): PolicyText | undefined {
  const areLimits = (value: unknown): boolean => Array.isArray(value) && value.every(isLimit);
  try {
    const read = JSON.parse(text) as PolicyText;
    const { limits, perKey, shares } = read;
    const isShared =
      areLimits(limits) && Array.isArray(shares) && shares.length === PRIORITIES.length;
    const isKeyed = perKey === true || perKey === null || areLimits(perKey);
    return isShared && isKeyed && (limits.length > 0 || perKey !== null) ? read : undefined;
  } catch {
    // No JSON: told as what it is, by the caller.
    return undefined;
  }
}

function unreadable(where: string, text: string): never {
  const remedy =
    "another replica has put it in force and this one cannot hold to it; give all replicas the same version of your code";
  throw new InvalidOptionError({ where, option: "policy", value: text, remedy });
}
