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
import { namesKeys } from "../core/policy/fair.ts";
import type { PoolPolicyOptions } from "../core/policy/pool.ts";
import type { Path, Problem } from "./problem.ts";

/**
 * Converts an entry of the rules file to options of `bucket()`. Anything unknown is passed on
 * unchanged, and compiling the policy rejects it.
 *
 * @throws {@link InvalidOptionError} when a limit in the entry can never work.
 */
export function optionsOf(given: unknown, tiers: Tiers = {}): PolicyOptions {
  if (!isTable(given)) return given as PolicyOptions;
  const { perKey, members } = given;
  const options = { ...limitsOf(given, ""), ...(isTable(members) && membersOf(members)) };
  if (perKey === undefined) return options;
  return { ...options, perKey: perKeyOf(perKey, tiers) } as PolicyOptions;
}

/**
 * The `tiers` of a rules file: per-key limits by tier name. Bucket entries refer to these names.
 */
export type Tiers = Readonly<Record<string, unknown>>;

function membersOf(given: Readonly<Record<string, unknown>>): object {
  const entries = Object.entries(given);
  return {
    members: Object.fromEntries(
      entries.map(([name, each]) => [name, limitsOf(each, `members.${name}.`)]),
    ),
  };
}

function perKeyOf(given: unknown, tiers: Tiers): unknown {
  if (Array.isArray(given)) {
    return given.map((each: unknown, level) =>
      each === null ? undefined : keyLimitsOf(each, `perKey[${level}]`, tiers),
    );
  }
  // A named key may itself be called "tier". Then its value is a table.
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

/**
 * Returns the per-key limits of an entry. Limits in the entry override the limits of the tier that
 * it names.
 */
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
 * Compiles the policy that rules and code together define for a bucket. Anything that the rules
 * omit comes from the code's policy. Returns undefined if the code's policy is unknown, and the rules
 * set only per-key limits beside shadows or the weights and floors of keys, or change only some
 * members of a pool.
 *
 * @throws {@link InvalidOptionError} when the rules and the code cannot be combined.
 */
export function policyUnder(
  where: string,
  options: PolicyOptions,
  code: Policy | undefined,
): Policy | undefined {
  if (code !== undefined) return compileOver(where, options, code);
  const { limits, shadows, perKey, pool } = compileAlone(where, options);
  const areOfShared = shadows.length > 0 || namesKeys(options.fair);
  // An entry may only change some members of a pool.
  const { members = {}, prefer, stickyBy, stickyMs } = options as PoolPolicyOptions;
  const isOfPool = [prefer, stickyBy, stickyMs].some((value) => value !== undefined);
  const known = pool?.members.length ?? 0;
  const isPartOfPool = Object.keys(members).length > known || (isOfPool && known === 0);
  const needsCode = isPartOfPool || (areOfShared && limits.length === 0 && perKey !== undefined);
  return needsCode ? undefined : compilePolicy(where, options);
}

/**
 * The advice for `tierOf` in a rules file. A file cannot contain the function that chooses the tier
 * of a key.
 */
const NAMED_TIERS =
  "only code can set it; in the file, define tiers at the top, such as tiers: { free: { rate: 1/s } }, and give { tier: free }";

/**
 * Returns the problem in an entry, in the words that code with the same options would get. Returns
 * undefined if there is no problem.
 */
export function problemIn(path: Path, given: object, tiers: Tiers = {}): Problem | undefined {
  return problemOf(path, () => compileAlone("", optionsOf(given, tiers)));
}

/** Checks the `defaults` of a rules file, as far as this is possible without the buckets. */
export function problemInDefaults(given: object, tiers: Tiers): Problem | undefined {
  return problemOf(["defaults"], () => optionsOf(given, tiers));
}

/** Checks the rates of tenants and endpoints, including all nested levels. */
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
