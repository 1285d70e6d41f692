/** What of a key can be paused: it has to have limits, and so a state, of its own. */
import { describeValue } from "../describe.ts";
import { InvalidOptionError } from "../errors.ts";
import { keyOfText, namedOf, textsOfNamedKeys } from "../key-path.ts";
import { ownScopeOf, scopesOf } from "./per-key.ts";
import type { Policy } from "./policy.ts";
import type { LimitedKey } from "../store.ts";

/** @throws {@link InvalidOptionError} when the key has no state; it says what to name instead. */
export function steeredScopeOf(where: string, policy: Policy, key: string): LimitedKey {
  const scope = ownScopeOf(policy, key, where);
  if (scope !== undefined) return scope;
  const { key: path, keys } = namedOf(key);
  const option = keys === undefined ? "key" : "keys";
  throw new InvalidOptionError({
    where,
    option,
    value: keys ?? path,
    remedy: remedyOf(policy, key),
  });
}

function remedyOf(policy: Policy, key: string): string {
  if (textsOfNamedKeys(key).length > 1) return "name one of the keys: each has a state of its own";
  const head = scopesOf(policy, key).at(-1);
  if (head !== undefined) {
    return `only its first names have limits: name ${describeValue(keyOfText(head.key))}, which stands for all below it`;
  }
  const isOfLevels = (policy.perKey?.parts.length ?? 0) > 1;
  const lacking = isOfLevels ? "perKey limits for its level" : "the bucket perKey";
  return `a key without limits of its own has no state; give ${lacking}, or leave the key out`;
}
