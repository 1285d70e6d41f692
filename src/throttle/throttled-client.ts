import * as z from "zod";
import { InvalidOptionError } from "../core/errors.ts";
import { readOptions } from "../core/options.ts";
import type { Bucket } from "./bucket.ts";
import { assertPathLeads } from "./client-paths.ts";
import { readCallOptions } from "./draw-options.ts";
import { isNamespace, isReference } from "./namespace.ts";
import type { ThrottledOptions } from "./throttled-function.ts";

type AnyFunction = (...args: never[]) => unknown;

/** How the calls of a wrapped client draw; key and cost may depend on the arguments. */
export interface ThrottledClientOptions extends ThrottledOptions<AnyFunction> {
  /**
   * Which methods are paced, by their paths from the client: `"chat.completions.create"`,
   * or `"charges.*"`, in which `*` stands for any one name. Name them when the client also has
   * methods that send nothing, or whose result is more than a promise. Defaults to all.
   */
  readonly methods?: readonly string[] | undefined;
}

/** What is left of each path at one object or function; `""` where a path ends. */
type Paths = readonly string[];

/** One call on its way: the client's own function, its own `this`, and what `this` was called as. */
interface Call {
  readonly fn: AnyFunction;
  readonly self: unknown;
  readonly via: unknown;
}

interface Wrapping {
  /** Runs a call in its slot; it sees the method's own arguments, as `key` and `cost` do. */
  readonly pace: (this: Call, ...args: never[]) => unknown;
  /** By what they stand for and the paths left there, so that each read gives the same one. */
  readonly proxies: WeakMap<object, Map<string, object>>;
  readonly originals: WeakMap<object, object>;
}

/** The default of `methods`; unlike a written path, it goes on for ever. */
const EVERYTHING = "**";
/** What the language calls by itself, beside what every object has. */
const NEVER_PACED: ReadonlySet<PropertyKey> = new Set(["then", "catch", "finally", "toJSON"]);

const METHODS_ERROR = {
  error: 'name at least one method, such as ["charges.create"], or leave the option out',
};
const PATH_ERROR = {
  error: 'write a path such as "charges.create", or "charges.*" for all methods of charges',
};
const PATH = z.string(PATH_ERROR).regex(/^(\*|[^.*]+)(\.(\*|[^.*]+))*$/, PATH_ERROR);
const METHODS = z.looseObject({
  methods: z.array(PATH, METHODS_ERROR).min(1, METHODS_ERROR).optional(),
});

/**
 * The same client, but its methods wait for their slots: `stripe.charges.create(…)` is
 * written as ever, and leaves when the bucket lets it.
 *
 * Methods run on the real object, so what they call of it themselves is not paced again.
 * A paced method answers with a plain promise, even if the client's own would answer at once
 * or with more (pages to iterate over, `.withResponse()`): leave those out by naming the
 * others in `methods`. `concurrency` bounds all paced methods together.
 *
 * @throws {@link InvalidOptionError} when an option can never work, or there is
 * no property of a name on a path.
 */
export function throttledClient<C extends object>(
  client: C,
  bucket: Pick<Bucket, "throttled">,
  options: ThrottledClientOptions = {},
): C {
  const where = "throttledClient()";
  if (!isReference(client)) {
    const remedy = "give the client whose methods are to be paced";
    throw new InvalidOptionError({ where, option: "client", value: client, remedy });
  }
  if (typeof bucket?.throttled !== "function") {
    const remedy = "give what sluice.bucket() returned";
    throw new InvalidOptionError({ where, option: "bucket", value: bucket, remedy });
  }
  readOptions(where, METHODS, options);
  const { methods = [EVERYTHING], ...rest } = options;
  for (const [index, path] of methods.entries()) {
    assertPathLeads(where, client, `methods.${index}`, path);
  }
  const pace = bucket.throttled(run, readCallOptions(where, rest));
  const wrapping: Wrapping = { pace, proxies: new WeakMap(), originals: new WeakMap() };
  return proxyOf(wrapping, client, [...methods]) as C;
}

/** What answers with its own object goes on with the paced one: `client.withTimeout(5).charges`. */
function run(this: Call, ...args: never[]): unknown {
  const result: unknown = Reflect.apply(this.fn, this.self, args);
  return result === this.self ? this.via : result;
}

function proxyOf(wrapping: Wrapping, target: object, paths: Paths): object {
  const known = wrapping.proxies.get(target) ?? new Map<string, object>();
  wrapping.proxies.set(target, known);
  const id = JSON.stringify(paths);
  const found = known.get(id);
  if (found !== undefined) return found;
  const proxy = createProxy(wrapping, target, paths);
  known.set(id, proxy);
  wrapping.originals.set(proxy, target);
  return proxy;
}

function createProxy(wrapping: Wrapping, target: object, paths: Paths): object {
  const isPaced = paths.includes("") || paths.includes(EVERYTHING);
  const original = <T>(value: T): T =>
    isReference(value) ? ((wrapping.originals.get(value) as T | undefined) ?? value) : value;
  const wrap = (name: PropertyKey, value: unknown): unknown => {
    if (!isReference(value) || isRaw(target, name)) return value;
    const below = pathsBelow(paths, name);
    const isWrapped = typeof value === "function" || (below.length > 0 && isNamespace(value));
    return isWrapped ? proxyOf(wrapping, value, below) : value;
  };

  return new Proxy(standInFor(target), {
    get: (_, name) => wrap(name, Reflect.get(target, name)),
    set: (_, name, value) => Reflect.set(target, name, original(value)),
    has: (_, name) => Reflect.has(target, name),
    ownKeys: () => Reflect.ownKeys(target),
    getPrototypeOf: () => Reflect.getPrototypeOf(target),
    deleteProperty: (_, name) => Reflect.deleteProperty(target, name),
    defineProperty: (_, name, property) =>
      Reflect.defineProperty(target, name, mapValue(property, original)),
    getOwnPropertyDescriptor(_, name) {
      const property = Reflect.getOwnPropertyDescriptor(target, name);
      if (property === undefined) return undefined;
      return { ...mapValue(property, (value) => wrap(name, value)), configurable: true };
    },
    preventExtensions: () => false,
    apply(_, via: unknown, args: never[]) {
      const call: Call = { fn: target as AnyFunction, self: original(via), via };
      return Reflect.apply(isPaced ? wrapping.pace : run, call, args);
    },
    construct: (_, args, newTarget) =>
      Reflect.construct(target as new () => object, args, original(newTarget)) as object,
  });
}

/** What the proxy guards in place of a target: had that a frozen method, a proxy on it could show no other. */
function standInFor(target: object): object {
  if (typeof target === "function")
    return Function.prototype.bind.call(target, undefined) as object;
  return { [Symbol.for("nodejs.util.inspect.custom")]: () => target };
}

function mapValue(
  property: PropertyDescriptor,
  map: (value: unknown) => unknown,
): PropertyDescriptor {
  return "value" in property ? { ...property, value: map(property.value) } : property;
}

/** What has to stay itself: classes, for `instanceof`, and what functions have by nature, such as `bind`. */
function isRaw(target: object, name: PropertyKey): boolean {
  if (name === "constructor") return true;
  return typeof target === "function" && (name === "prototype" || name in Function.prototype);
}

function pathsBelow(paths: Paths, name: PropertyKey): Paths {
  const isPlain = typeof name === "string" && !(name in Object.prototype) && !NEVER_PACED.has(name);
  if (!isPlain) return [];
  return paths.flatMap((path) => {
    if (path === EVERYTHING) return [path];
    const [head, ...rest] = path.split(".");
    return path !== "" && (head === "*" || head === name) ? [rest.join(".")] : [];
  });
}
