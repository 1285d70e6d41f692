import { InvalidOptionError, remedyOf } from "../core/errors.ts";
import { closest } from "../core/input/options.ts";
import { limitOf, type LimitData } from "../core/policy/limit-makers.ts";
import {
  compileAlone,
  compileOver,
  compilePolicy,
  type Policy,
  type PolicyOptions,
} from "../core/policy/policy.ts";
import type { Path, Problem } from "./problem.ts";

/**
 * Translates an entry of the file to options of `bucket()`. Passes on anything it does not
 * understand; compiling the policy rejects it.
 *
 * @throws {@link InvalidOptionError} when one of its limits can never work.
 */
export function optionsOf(given: unknown, tiers: Tiers = {}): PolicyOptions {
  if (!isTable(given)) return given as PolicyOptions;
  const { perKey } = given;
  const options = limitsOf(given, "");
  if (perKey === undefined) return options;
  return { ...options, perKey: perKeyOf(perKey, tiers) } as PolicyOptions;
}

/** Limits of keys, by the name that entries refer to. */
export type Tiers = Readonly<Record<string, unknown>>;

function perKeyOf(given: unknown, tiers: Tiers): unknown {
  if (Array.isArray(given)) {
    return given.map((each: unknown, level) =>
      each === null ? undefined : keyLimitsOf(each, `perKey[${level}]`, tiers),
    );
  }
  // A key may itself be called "tier".
  const isForAll =
    !isTable(given) || "limits" in given || ("tier" in given && !isTable(given["tier"]));
  if (isForAll) return keyLimitsOf(given, "perKey", tiers);
  const entries = Object.entries(given);
  return Object.fromEntries(
    entries.map(([name, each]) => [
      name,
      isTable(each) ? keyLimitsOf(each, `perKey.${name}`, tiers) : each,
    ]),
  );
}

/** Limits of keys: those of the named tier, overridden by the entry's own. */
function keyLimitsOf(given: unknown, path: string, tiers: Tiers): unknown {
  if (!isTable(given) || !("tier" in given)) return limitsOf(given, `${path}.`);
  const { tier: name, ...own } = given;
  const tier = typeof name === "string" && Object.hasOwn(tiers, name) ? tiers[name] : undefined;
  if (!isTable(tier)) {
    const names = Object.keys(tiers);
    const near = typeof name === "string" ? closest(name, names) : undefined;
    const hint = near === undefined ? `the tiers are ${names.join(", ")}` : `did you mean ${near}?`;
    const remedy = `there is no such tier; ${names.length === 0 ? "name it in tiers" : hint}`;
    throw new InvalidOptionError({ where: "", option: `${path}.tier`, value: name, remedy });
  }
  return limitsOf({ ...tier, ...own }, `${path}.`);
}

function limitsOf(given: unknown, path: string): Record<string, unknown> {
  if (!isTable(given) || !Array.isArray(given["limits"])) return given as Record<string, unknown>;
  const limits = given["limits"].map((each: unknown, at) =>
    makeLimit(each, `${path}limits[${at}]`),
  );
  return { ...given, limits };
}

function makeLimit(given: unknown, path: string): unknown {
  try {
    return typeof given === "string" || isTable(given) ? limitOf(given as LimitData) : given;
  } catch (error) {
    if (!(error instanceof InvalidOptionError)) throw error;
    const option = typeof given === "string" ? path : `${path}.${error.option}`;
    const { value } = error;
    throw new InvalidOptionError({ where: "", option, value, remedy: remedyOf(error) });
  }
}

/**
 * Compiles a bucket's policy under the rules. The code's policy applies to what the rules omit.
 * Returns undefined if the rules set shadows next to key limits only, and the code's limits are
 * unknown.
 *
 * @throws {@link InvalidOptionError} when the two cannot be combined.
 */
export function policyUnder(
  where: string,
  options: PolicyOptions,
  code: Policy | undefined,
): Policy | undefined {
  if (code !== undefined) return compileOver(where, options, code);
  const { limits, shadows, perKey } = compileAlone(where, options);
  const needsCode = shadows.length > 0 && limits.length === 0 && perKey !== undefined;
  return needsCode ? undefined : compilePolicy(where, options);
}

/** A file cannot hold the function that chooses the tier of a key. */
const NAMED_TIERS =
  "only code can set it; in the file, define tiers at the top, such as tiers: { free: { rate: 1/s } }, and give { tier: free }";

/**
 * Returns the problem in an entry, as the code would report it for the same options. Undefined if
 * there is none.
 */
export function problemIn(path: Path, given: object, tiers: Tiers = {}): Problem | undefined {
  return problemOf(path, () => compileAlone("", optionsOf(given, tiers)));
}

/** Checks the defaults, as far as this does not depend on the buckets. */
export function problemInDefaults(given: object, tiers: Tiers): Problem | undefined {
  return problemOf(["defaults"], () => optionsOf(given, tiers));
}

/** Checks the rates of tenants and endpoints at all levels. */
export function problemsInEndpoints(path: Path, given: unknown): Problem[] {
  if (!isTable(given)) return [];
  const { rate, tenants, endpoints } = given;
  const own = rate === undefined ? undefined : problemIn(path, { rate });
  const levels = ["perTenant", "perEndpoint", "ceiling"].map(
    (name) => [[name], given[name]] as const,
  );
  const named = Object.entries({ tenants, endpoints }).flatMap(([name, all]) =>
    isTable(all) ? Object.entries(all).map(([of, each]) => [[name, of], each] as const) : [],
  );
  const below = [...levels, ...named].flatMap(([names, each]) =>
    problemsInEndpoints([...path, ...names], each),
  );
  return own === undefined ? below : [own, ...below];
}

function problemOf(path: Path, compile: () => unknown): Problem | undefined {
  try {
    compile();
    return undefined;
  } catch (error) {
    if (!(error instanceof InvalidOptionError)) throw error;
    const { option, value } = error;
    const within = option === "options" ? [] : partsOf(option);
    const remedy = within.at(-1) === "tierOf" ? NAMED_TIERS : remedyOf(error);
    const isOfName = remedy.startsWith("there is no such option");
    return { path: [...path, ...within], value, remedy, isOfName };
  }
}

/** Splits `"perKey.free.limits[0]"` into its parts. */
function partsOf(option: string): (string | number)[] {
  const parts = option.match(/[^.[\]]+/g) ?? [];
  return parts.map((part) => (/^\d+$/.test(part) ? Number(part) : part));
}

export function isTable(given: unknown): given is Record<string, unknown> {
  return typeof given === "object" && given !== null && !Array.isArray(given);
}
