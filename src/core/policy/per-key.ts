import { describeValue } from "../describe.ts";
import { InvalidOptionError } from "../errors.ts";
import { firstOfText, isOfNames, namedOf } from "../key-path.ts";
import type { RateInput } from "../limits/rate.ts";
import type { Limit } from "../limits/rule.ts";
import { closest } from "../options.ts";
import { NO_PLACE, type KeyScope } from "../store.ts";
import type { LimitsOptions } from "./limit-makers.ts";

/** A table of tiers, and the tier of each key. */
export interface Tiers<Rate extends RateInput = RateInput> {
  readonly tiers: Readonly<Record<string, LimitsOptions<Rate>>>;
  readonly tierOf: (key: string) => string;
}

/** The limits that each key has for itself. */
export type PerKey<Rate extends RateInput = RateInput> =
  | LimitsOptions<Rate>
  | Tiers<Rate>
  | ((key: string) => LimitsOptions<Rate>);

/** The compiled limits of keys. */
export interface KeyPolicy {
  /** @throws {@link InvalidOptionError} when the key's limits can never work, or its tier is not in the table. */
  readonly limitsOf: (key: string) => readonly Limit[];
  /** The limits, if they are the same for all keys. */
  readonly fixed: readonly Limit[] | undefined;
  /** All limits that any key may have; undefined if a function decides. */
  readonly all: readonly Limit[] | undefined;
  /** Whether only this process knows them. */
  readonly isLocal: boolean;
}

/** The limits that a key has for itself; none without a key. */
export function keyLimitsOf(
  { perKey }: { readonly perKey: KeyPolicy | undefined },
  key: string | undefined,
): readonly Limit[] {
  if (key === undefined) return NONE;
  if (isOfNames(key)) throw unnamed(key);
  return perKey?.limitsOf(firstOfText(key)) ?? NONE;
}

function unnamed(key: string): InvalidOptionError {
  const remedy = "perKey of the bucket has no names; give key instead";
  const { keys: value } = namedOf(key);
  return new InvalidOptionError({ where: "perKey", option: "keys", value, remedy });
}

/** The head of a key that has limits for itself; undefined if none has: its names are labels only. */
export function limitedHeadOf(
  policy: { readonly perKey: KeyPolicy | undefined },
  key: string | undefined,
): string | undefined {
  return key === undefined || keyLimitsOf(policy, key).length === 0 ? undefined : firstOfText(key);
}

/** What of a key has limits of its own, the widest first; the asker waits for none of it yet. */
export function scopesOf(
  policy: { readonly perKey: KeyPolicy | undefined },
  key: string | undefined,
): readonly KeyScope[] {
  const limits = keyLimitsOf(policy, key);
  return limits.length === 0 ? NO_SCOPES : [{ key: firstOfText(key!), limits, place: NO_PLACE }];
}

/** Compiles the limits at a path of the policy: `"perKey.tiers.free"`. */
type Compile = (path: string, given: LimitsOptions) => readonly Limit[];

const NONE: readonly Limit[] = [];
const NO_SCOPES: readonly KeyScope[] = [];
/** The most answers of a function that are kept compiled. */
const MOST_KEPT = 1_000;

export function compilePerKey(where: string, given: PerKey, compile: Compile): KeyPolicy {
  if (typeof given === "function") return byFunction(given, compile);
  if (isTiers(given)) return byTier(where, given, compile);
  const fixed = compile("perKey", given);
  return { limitsOf: () => fixed, fixed, all: fixed, isLocal: false };
}

function byFunction(policyOf: (key: string) => LimitsOptions, compile: Compile): KeyPolicy {
  const compiled = new Map<string, readonly Limit[]>();
  return {
    limitsOf(key) {
      const options = policyOf(key);
      const name = nameOf(options);
      const found = name === undefined ? undefined : compiled.get(name);
      if (found !== undefined) return found;
      const limits = compile("perKey", options);
      if (name === undefined) return limits;
      if (compiled.size >= MOST_KEPT) compiled.clear();
      compiled.set(name, limits);
      return limits;
    },
    fixed: undefined,
    all: undefined,
    isLocal: true,
  };
}

/** Identifies the answer of a function; undefined for a wrong one, such as a promise, which is `{}` in JSON. */
function nameOf(options: unknown): string | undefined {
  if (typeof options !== "object" || options === null || "then" in options) return undefined;
  try {
    return JSON.stringify(options) as string | undefined;
  } catch {
    // A cycle, or a BigInt: these are no limits.
    return undefined;
  }
}

function byTier(where: string, given: Tiers, compile: Compile): KeyPolicy {
  const { tiers, tierOf, ...others } = given;
  if (typeof tierOf !== "function" || typeof tiers !== "object" || tiers === null) {
    const option = typeof tierOf === "function" ? "perKey.tiers" : "perKey.tierOf";
    const remedy = 'give { tiers: { free: { rate: "1/s" } }, tierOf: (key) => "free" }';
    const value = typeof tierOf === "function" ? tiers : tierOf;
    throw new InvalidOptionError({ where, option, value, remedy });
  }
  assertAlone(where, others);
  const table = new Map(
    Object.entries(tiers).map(([tier, limits]) => [tier, compile(pathOf(tier), limits)]),
  );
  return {
    limitsOf(key) {
      const tier = tierOf(key);
      const limits = table.get(tier);
      if (limits !== undefined) return limits;
      const near = typeof tier === "string" ? closest(tier, [...table.keys()]) : undefined;
      const hint =
        near === undefined
          ? `the tiers are ${[...table.keys()].join(", ")}`
          : `did you mean ${near}?`;
      const remedy = `there is no such tier; ${hint}`;
      throw new InvalidOptionError({ where, option: "perKey.tierOf()", value: tier, remedy });
    },
    fixed: undefined,
    all: [...table.values()].flat(),
    isLocal: true,
  };
}

/** Refuses limits beside a table of tiers; they would apply to no key. */
function assertAlone(where: string, others: object): void {
  const other = Object.entries(others).find(([, value]) => value !== undefined);
  if (other === undefined) return;
  const [name, value] = other;
  const near = closest(name, ["tiers", "tierOf"]);
  const remedy =
    near === undefined
      ? "give limits inside each tier; beside the tiers they have no effect"
      : `there is no such option; did you mean ${near}?`;
  throw new InvalidOptionError({ where, option: `perKey.${name}`, value, remedy });
}

function pathOf(tier: string): string {
  return /^\w{1,40}$/.test(tier) ? `perKey.tiers.${tier}` : `perKey.tiers[${describeValue(tier)}]`;
}

export function isTiers(given: PerKey | undefined): given is Tiers {
  return typeof given === "object" && given !== null && ("tiers" in given || "tierOf" in given);
}
