/** From what a file says to the limits of a bucket. */
import { InvalidOptionError, remedyOf } from "../core/errors.ts";
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
export function optionsOf(given: unknown): PolicyOptions {
  if (!isTable(given)) return given as PolicyOptions;
  const { perKey } = given;
  const options = limitsOf(given, "");
  if (perKey === undefined) return options;
  return { ...options, perKey: perKeyOf(perKey) } as PolicyOptions;
}

function perKeyOf(given: unknown): unknown {
  if (Array.isArray(given)) {
    return given.map((each: unknown, level) =>
      each === null ? undefined : limitsOf(each, `perKey[${level}].`),
    );
  }
  if (!isTable(given) || "limits" in given) return limitsOf(given, "perKey.");
  const entries = Object.entries(given);
  return Object.fromEntries(
    entries.map(([name, each]) => [name, isTable(each) ? limitsOf(each, `perKey.${name}.`) : each]),
  );
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
 * What rules make of a bucket: what they leave out stays as the code declares it. Undefined where they only give shadows,
 * and no code is known whose limits those could stand beside.
 *
 * @throws {@link InvalidOptionError} when both do not go together.
 */
export function policyUnder(
  where: string,
  options: PolicyOptions,
  code: Policy | undefined,
): Policy | undefined {
  if (code !== undefined) return compileOver(where, options, code);
  const { limits, shadows } = compileAlone(where, options);
  return shadows.length > 0 && limits.length === 0 ? undefined : compilePolicy(where, options);
}

/** What is wrong with an entry, by what the code would say to the same options; undefined if nothing is. */
export function problemIn(path: Path, given: object): Problem | undefined {
  try {
    compileAlone("", optionsOf(given));
    return undefined;
  } catch (error) {
    if (!(error instanceof InvalidOptionError)) throw error;
    const { option, value } = error;
    const remedy = remedyOf(error);
    const within = option === "options" ? [] : partsOf(option);
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
