import { InvalidOptionError } from "../errors.ts";

type Method = (...args: never[]) => unknown;
type MethodNames<Methods> = {
  [Name in keyof Methods]: Methods[Name] extends Method ? Name : never;
}[keyof Methods];

/**
 * How many arguments a method takes; one that answers at once throws its refusal, and the others reject with it. `takes`
 * is what to write instead.
 */
type Arity =
  | number
  | { readonly atOnce: number }
  | { readonly most: number; readonly takes: string };

/** Those of all methods of an object, so that no new one is forgotten. */
export type Arities<Methods> = Readonly<Record<MethodNames<Methods> & string, Arity>>;

/** Lets methods refuse the arguments that they would not read: who gives them believes that they count. */
export function refuseExtra<Methods extends object>(
  methods: Methods,
  arities: Readonly<Record<string, Arity>>,
): Methods {
  for (const [name, arity] of Object.entries(arities)) {
    const isAtOnce = typeof arity !== "number" && "atOnce" in arity;
    const most = typeof arity === "number" ? arity : isAtOnce ? arity.atOnce : arity.most;
    const takes = typeof arity !== "number" && "takes" in arity ? arity.takes : undefined;
    const known = methods as Record<string, (...args: unknown[]) => unknown>;
    const method = known[name]!;
    known[name] = function (this: unknown, ...args) {
      const refusal =
        args.length > most ? refusalOf(name, most, args.slice(most), takes) : undefined;
      if (refusal === undefined) return method.apply(this, args);
      if (isAtOnce) throw refusal;
      return Promise.reject(refusal);
    };
  }
  return methods;
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

/** What `ids.map(queue.job)` and `process.once("SIGTERM", sluice.close)` add by themselves. */
function isByCaller(most: number, extra: readonly unknown[]): boolean {
  const [first, second] = extra;
  if (extra.length !== 2) return false;
  if (most === 1 && typeof first === "number") return Array.isArray(second);
  return (
    most === 0 && typeof first === "string" && first.startsWith("SIG") && typeof second === "number"
  );
}

/** The first option of what looks like some. */
function namedIn(value: unknown): [name: string, value: unknown] | undefined {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return undefined;
  const [name] = Object.keys(value);
  return name === undefined ? undefined : [name, (value as Record<string, unknown>)[name]];
}

/**
 * Refuses what is given as undefined to a method that acts on all that it is not told to leave out: `{ key: tenant.id }`
 * means one tenant, also where its id is missing.
 *
 * @throws {@link InvalidOptionError} when a field is undefined.
 */
export function refuseUndefined(where: string, given: unknown): void {
  if (typeof given !== "object" || given === null) return;
  const option = Object.keys(given).find(
    (name) => (given as Record<string, unknown>)[name] === undefined,
  );
  if (option === undefined) return;
  const remedy = `it is there but undefined; leave it out if all are meant, whatever their ${option}`;
  throw new InvalidOptionError({ where, option, value: undefined, remedy });
}
