/**
 * Compiles the limits for one level or one name of keys: the same limits for all keys, limits from a function, or
 * limits from a table of tiers.
 */
import { InvalidOptionError } from "../errors.ts";
import type { RateInput } from "../limits/rate.ts";
import type { Limit } from "../limits/rule.ts";
import { closest } from "../input/options.ts";
import type { LimitsOptions } from "./limit-makers.ts";

/** A table of limits by tier, and a function that returns the tier of a key. */
export interface Tiers<Rate extends RateInput = RateInput, Seen = string> {
  readonly tiers: Readonly<Record<string, LimitsOptions<Rate>>>;
  readonly tierOf: (key: Seen) => string;
}

/**
 * Limits that apply to each key separately. If they are a function, the function receives the key and returns its
 * limits.
 */
export type KeyLimits<Rate extends RateInput = RateInput, Seen = string> =
  | LimitsOptions<Rate>
  | Tiers<Rate, Seen>
  | ((key: Seen) => LimitsOptions<Rate>);

/** Compiled per-key limits of one level or name. */
export interface CompiledLimits {
  /** @throws {@link InvalidOptionError} when the key's limits can never work, or when its tier is not in the table. */
  readonly limitsOf: (seen: never) => readonly Limit[];
  /** The limits, if all keys have the same limits. */
  readonly fixed: readonly Limit[] | undefined;
  /** All limits that any key may have. Undefined if a function decides. */
  readonly all: readonly Limit[] | undefined;
}

/** The surrounding parts of the policy that decide which limits of a key are valid. */
interface Beside {
  /** The fixed limits of the bucket and of wider keys, which also apply to each call of this key. */
  readonly wider: readonly Limit[];
  /** True if the limits are one of several levels or names, so that they may be empty. */
  readonly isOneOfMany: boolean;
}

/** Compiles the limits at a path of the policy: `"perKey.tiers.free"`. */
export type Compile = (path: string, given: LimitsOptions, beside: Beside) => readonly Limit[];

type CompileOne = (path: string, given: LimitsOptions) => readonly Limit[];

/** The longest name in the path that an error shows. Longer names are shortened. */
const LONGEST_SHOWN = 40;
/** The most compiled results of a function that stay cached. */
const MOST_KEPT = 1_000;

export function fixedLimits(limits: readonly Limit[]): CompiledLimits {
  return { limitsOf: () => limits, fixed: limits, all: limits };
}

/** Compiles the limits at a path of the policy, such as `"perKey[1]"`. */
export function compileKeyLimits(
  where: string,
  path: string,
  given: KeyLimits<RateInput, never>,
  compile: CompileOne,
): CompiledLimits {
  if (typeof given === "function") return byFunction(path, given, compile);
  if (isTiers(given)) return byTier(where, path, given, compile);
  return fixedLimits(compile(path, given));
}

function byFunction(
  path: string,
  policyOf: (seen: never) => LimitsOptions,
  compile: CompileOne,
): CompiledLimits {
  const compiled = new Map<string, readonly Limit[]>();
  return {
    limitsOf(seen) {
      const options = policyOf(seen);
      const name = nameOf(options);
      const found = name === undefined ? undefined : compiled.get(name);
      if (found !== undefined) return found;
      const limits = compile(path, options);
      if (name === undefined) return limits;
      if (compiled.size >= MOST_KEPT) compiled.clear();
      compiled.set(name, limits);
      return limits;
    },
    fixed: undefined,
    all: undefined,
  };
}

/**
 * Returns a text that identifies the result of a limit function. Returns undefined for an invalid result, such as a
 * promise, which JSON would write as `{}`.
 */
function nameOf(options: unknown): string | undefined {
  if (typeof options !== "object" || options === null || "then" in options) return undefined;
  try {
    return JSON.stringify(options) as string | undefined;
  } catch {
    // A value with a cycle or a BigInt cannot be limits.
    return undefined;
  }
}

function byTier(
  where: string,
  path: string,
  given: Tiers<RateInput, never>,
  compile: CompileOne,
): CompiledLimits {
  const { tiers, tierOf, ...others } = given;
  if (typeof tierOf !== "function" || typeof tiers !== "object" || tiers === null) {
    const option = typeof tierOf === "function" ? `${path}.tiers` : `${path}.tierOf`;
    const remedy = 'give { tiers: { free: { rate: "1/s" } }, tierOf: (key) => "free" }';
    const value = typeof tierOf === "function" ? tiers : tierOf;
    throw new InvalidOptionError({ where, option, value, remedy });
  }
  assertAlone(where, path, others);
  const table = new Map(
    Object.entries(tiers).map(([tier, limits]) => [tier, compile(pathOf(path, tier), limits)]),
  );
  return {
    limitsOf(seen) {
      const tier = tierOf(seen);
      const limits = table.get(tier);
      if (limits !== undefined) return limits;
      const near = typeof tier === "string" ? closest(tier, [...table.keys()]) : undefined;
      const hint =
        near === undefined
          ? `the tiers are ${[...table.keys()].join(", ")}`
          : `did you mean ${near}?`;
      const remedy = `there is no such tier; ${hint}`;
      throw new InvalidOptionError({ where, option: `${path}.tierOf()`, value: tier, remedy });
    },
    fixed: undefined,
    all: [...table.values()].flat(),
  };
}

/** Rejects other limits in the same object as a table of tiers, because those limits would apply to no key. */
function assertAlone(where: string, path: string, others: object): void {
  const other = Object.entries(others).find(([, value]) => value !== undefined);
  if (other === undefined) return;
  const [name, value] = other;
  const near = closest(name, ["tiers", "tierOf"]);
  const remedy =
    near === undefined
      ? "give limits inside each tier; beside the tiers they have no effect"
      : `there is no such option; did you mean ${near}?`;
  throw new InvalidOptionError({ where, option: `${path}.${name}`, value, remedy });
}

/** Returns the path of an entry whose name comes from the application. */
export function pathOf(path: string, name: string, under = ".tiers"): string {
  const isPlain = /^\w{1,40}$/.test(name);
  return isPlain ? `${path}${under}.${name}` : `${path}${under}[${name.slice(0, LONGEST_SHOWN)}]`;
}

export function isTiers(given: unknown): given is Tiers<RateInput, never> {
  return typeof given === "object" && given !== null && ("tiers" in given || "tierOf" in given);
}
