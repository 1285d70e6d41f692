import { InvalidOptionError, remedyOf } from "../core/errors.ts";
import { closest } from "../core/input/options.ts";
import { limitOf, type LimitData } from "../core/policy/limit-data.ts";
import {
  compileAlone,
  compileOver,
  compilePolicy,
  type Policy,
  type PolicyOptions,
} from "../core/policy/policy.ts";
import type { Path, Problem } from "./problem.ts";

/**
 * The options of `bucket()` that an entry stands for. It may be of any form: what is not understood stays as it is, and
 * is refused where a policy is made of it.
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

/** Limits of keys by a name that entries refer to. */
export type Tiers = Readonly<Record<string, unknown>>;

function perKeyOf(given: unknown, tiers: Tiers): unknown {
  if (Array.isArray(given)) {
    return given.map((each: unknown, level) =>
      each === null ? undefined : keyLimitsOf(each, `perKey[${level}]`, tiers),
    );
  }
  // Keys may have a name that is tier.
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

/** Limits of keys: those of the tier, if one is named, and over these what stands beside its name. */
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
 * What rules make of a bucket: what they leave out stays as the code declares it. Undefined where they give shadows beside
 * limits of keys alone, and no code is known whose limits those could stand beside.
 *
 * @throws {@link InvalidOptionError} when both do not go together.
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

/** In a file there is no function that says which key is of which tier. */
const NAMED_TIERS =
  "only code can give it: here, name tiers at the top of the file, such as tiers: { free: { rate: 1/s } }, and give { tier: free }";

/** What is wrong with an entry, by what the code would say to the same options; undefined if nothing is. */
export function problemIn(path: Path, given: object, tiers: Tiers = {}): Problem | undefined {
  return problemOf(path, () => compileAlone("", optionsOf(given, tiers)));
}

/** The same of what buckets leave out, as far as it does not depend on what they say. */
export function problemInDefaults(given: object, tiers: Tiers): Problem | undefined {
  return problemOf(["defaults"], () => optionsOf(given, tiers));
}

/** The same of the rates of tenants and endpoints, wherever they stand. */
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

/** `"perKey.free.limits[0]"` in its parts. */
function partsOf(option: string): (string | number)[] {
  const parts = option.match(/[^.[\]]+/g) ?? [];
  return parts.map((part) => (/^\d+$/.test(part) ? Number(part) : part));
}

export function isTable(given: unknown): given is Record<string, unknown> {
  return typeof given === "object" && given !== null && !Array.isArray(given);
}
