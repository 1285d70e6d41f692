import { InvalidOptionError } from "../errors.ts";

type Method = (...args: never[]) => unknown;
type MethodNames<Methods> = {
  [Name in keyof Methods]: Methods[Name] extends Method ? Name : never;
}[keyof Methods] &
  string;

interface ArgumentRules<Methods> {
  /** Methods that throw the error instead of returning a rejected promise, because they do not return promises. */
  readonly throws?: readonly MethodNames<Methods>[];
  /** For each method, the advice that the error about an extra argument contains. */
  readonly takes?: { readonly [Name in MethodNames<Methods>]?: string };
  /** The methods to check. Defaults to all methods. */
  readonly only?: readonly MethodNames<Methods>[];
}

/**
 * Makes methods reject extra arguments, which would otherwise have no effect. A method accepts as many arguments as it
 * declares. The parameters of these methods must not have default values, because `length` counts only the parameters
 * before the first default.
 */
export function assertArgumentCount<Methods extends object>(
  methods: Methods,
  { throws = [], takes = {}, only }: ArgumentRules<Methods> = {},
): Methods {
  const known = methods as Record<string, (...args: unknown[]) => unknown>;
  const names: readonly string[] = only ?? methodNamesOf(methods);
  for (const name of names) {
    const method = known[name]!;
    const most = method.length;
    const remedy = (takes as Readonly<Record<string, string>>)[name];
    const isThrown = throws.some((each) => each === name);
    known[name] = function (this: unknown, ...args) {
      const refusal =
        args.length > most ? refusalOf(name, most, args.slice(most), remedy) : undefined;
      if (refusal === undefined) return method.apply(this, args);
      if (isThrown) throw refusal;
      return Promise.reject(refusal);
    };
  }
  return methods;
}

/** Lists the methods of an object or a prototype. Does not call getters. */
function methodNamesOf(methods: object): readonly string[] {
  const properties = Object.entries(Object.getOwnPropertyDescriptors(methods));
  return properties.flatMap(([name, { value }]) =>
    typeof value === "function" && name !== "constructor" ? [name] : [],
  );
}

function refusalOf(
  name: string,
  most: number,
  extra: readonly unknown[],
  takes: string | undefined,
): InvalidOptionError | undefined {
  const first = extra.find((value) => value !== undefined);
  if (first === undefined || isByCaller(most, extra)) return undefined;
  const [option, value] = namedIn(first) ?? ["arguments", first];
  const taken = most === 1 ? "one argument" : `${most} arguments`;
  const remedy =
    takes ?? `${most === 0 ? "it takes no options" : `it takes ${taken}`}; leave it out`;
  return new InvalidOptionError({ where: `${name}()`, option, value, remedy });
}

/** True for the extra arguments that `ids.map(queue.job)` and `process.once("SIGTERM", sluice.close)` add. */
function isByCaller(most: number, extra: readonly unknown[]): boolean {
  const [first, second] = extra;
  if (extra.length !== 2) return false;
  if (most === 1 && typeof first === "number") return Array.isArray(second);
  return (
    most === 0 && typeof first === "string" && first.startsWith("SIG") && typeof second === "number"
  );
}

/** Returns the first entry of a value that looks like an options object. */
function namedIn(value: unknown): [name: string, value: unknown] | undefined {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return undefined;
  const [name] = Object.keys(value);
  return name === undefined ? undefined : [name, (value as Record<string, unknown>)[name]];
}

/**
 * Rejects a filter with an explicit undefined. `{ key: tenant.id }` is meant for one tenant, but would match everything
 * if the id is missing.
 *
 * @throws {@link InvalidOptionError} when a field is undefined.
 */
export function assertNoUndefined(where: string, given: unknown): void {
  if (typeof given !== "object" || given === null) return;
  const option = Object.keys(given).find(
    (name) => (given as Record<string, unknown>)[name] === undefined,
  );
  if (option === undefined) return;
  const remedy = `it is undefined; give a value, or leave it out to match every ${option}`;
  throw new InvalidOptionError({ where, option, value: undefined, remedy });
}
