import * as z from "zod";
import { types } from "node:util";
import { describeValue } from "../../core/describe.ts";
import { InvalidOptionError } from "../../core/errors.ts";
import { closest, readOptions } from "../../core/input/options.ts";
import type { Bucket, OwnedBucket } from "../bucket.ts";
import { readCallOptions, type ThrottledOptions } from "../call-options.ts";
import { noteMethod } from "./call-defaults.ts";

type AnyFunction = (...args: never[]) => unknown;

/** The options of a wrapped client's calls. `key`, `keys` and `cost` may be functions of the call's arguments. */
export interface ThrottledClientOptions<
  Client = unknown,
  Path extends string = string,
> extends ThrottledOptions<AnyFunction> {
  /**
   * The methods that wait for slots, as paths from the client: `"chat.completions.create"`, or `"charges.*"`, where `*`
   * stands for any one name. Set this if the client also has methods that send nothing, or that return their result
   * immediately. Defaults to all methods.
   */
  readonly methods?: readonly (Path & MethodPath<Client, Path>)[] | undefined;
}

/**
 * The path itself if it leads from the client to a method, otherwise an error message. If the type of the path is only
 * `string`, the path is checked at run time.
 */
type MethodPath<Client, Path extends string> = string extends Path
  ? Path
  : Path extends unknown
    ? true extends LeadsToMethod<Client, Path>
      ? Path
      : `the client has no method "${Path}"`
    : never;

/**
 * True if the path leads from a value of type `From` to a method. For a union type, the result is a union of the
 * results for its members.
 */
type LeadsToMethod<From, Path extends string> =
  IsUntyped<From> extends true
    ? true
    : From extends unknown
      ? Path extends `${infer Name}.${infer Rest}`
        ? LeadsToMethod<Step<From, Name>, Rest>
        : IsMethod<Step<From, Path>>
      : never;

/** The type of the property that one name of a path leads to. `*` leads to all properties. */
type Step<From, Name extends string> = Name extends "*"
  ? From[keyof From]
  : Name extends keyof From
    ? From[Name]
    : never;

type IsMethod<Value> =
  IsUntyped<Value> extends true ? true : Value extends AnyFunction ? true : false;
/** True for `any` and `unknown`. */
type IsUntyped<Value> = unknown extends Value ? true : false;

/** The remaining part of each method path, seen from one object or function. `""` means that the path ends here. */
type Paths = readonly string[];

/** One call of a client's method: the method, its real `this`, and the proxy on which the method was called. */
interface Call {
  readonly fn: AnyFunction;
  readonly self: unknown;
  readonly via: unknown;
  /** Applies the caller's use of the result, such as `withResponse()`. The use is known when the call starts. */
  readonly use?: (own: unknown) => unknown;
}

interface Wrapping {
  /** Waits for a slot and runs a call with the method's arguments. `key` and `cost` receive the same arguments. */
  readonly pace: (this: Call, ...args: never[]) => unknown;
  /** The created proxies, by target object and remaining paths. Each read of a property then returns the same proxy. */
  readonly proxies: WeakMap<object, Map<string, object>>;
  readonly originals: WeakMap<object, object>;
  /** The path by which each object and method of the client was first reached. */
  readonly foundAt: WeakMap<object, string>;
}

/** The default path of `methods`: it matches all methods at all depths. */
const EVERYTHING = "**";
/** Methods that JavaScript itself calls, in addition to those of `Object.prototype`. They never wait for slots. */
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
 * Returns the same client, but its methods wait for slots. You still write `stripe.charges.create(…)`, and the request
 * starts when the bucket allows it.
 *
 * Methods run on the real client, so their internal calls of other methods do not wait again. A paced method returns a
 * promise. The promise also has the methods of the client's own promise, such as `.withResponse()`, and is iterable if
 * the result is. If a method of the client returns its result immediately, exclude it by listing the other methods in
 * `methods`. `concurrency` limits all paced methods together.
 *
 * @throws {@link InvalidOptionError} when an option can never work, or a path in `methods` names a property that does
 * not exist.
 */
export function throttledClient<C extends object, const Path extends string = string>(
  client: C,
  bucket: Pick<Bucket, "throttled">,
  options: ThrottledClientOptions<C, Path> = {},
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
  const { methods: named, ...rest } = options;
  const methods: readonly string[] = named ?? [EVERYTHING];
  for (const [index, path] of methods.entries()) {
    assertPathLeads(where, client, `methods[${index}]`, path);
  }
  readCallOptions(where, rest);
  const pace = bucket.throttled(run, rest);
  warnOfOwnRetries(client, bucket);
  const wrapping: Wrapping = {
    pace,
    proxies: new WeakMap(),
    originals: new WeakMap(),
    foundAt: new WeakMap([[client, ""]]),
  };
  return proxyOf(wrapping, client, [...methods]) as C;
}

/**
 * Runs a method. If the method returns its own object, returns the proxy of this object instead, so that the methods in
 * `client.withTimeout(5).charges` are paced too.
 */
function run(this: Call, ...args: never[]): unknown {
  const result: unknown = Reflect.apply(this.fn, this.self, args);
  if (result === this.self) return this.via;
  return this.use === undefined ? result : this.use(result);
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
    if (!isWrapped) return value;
    noteFound(wrapping, { owner: target, name, value });
    return proxyOf(wrapping, value, below);
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
      if (!isPaced) return Reflect.apply(run, call, args);
      return pacedPromise((use) => {
        const leaving: Call = { ...call, use };
        noteMethod(leaving, methodOf(wrapping, call));
        const paced: unknown = Reflect.apply(wrapping.pace, leaving, args);
        return paced as Promise<unknown>;
      });
    },
    construct: (_, args, newTarget) =>
      Reflect.construct(target as new () => object, args, original(newTarget)) as object,
  });
}

interface Found {
  readonly owner: object;
  readonly name: PropertyKey;
  readonly value: object;
}

function noteFound({ foundAt }: Wrapping, { owner, name, value }: Found): void {
  const before = foundAt.get(owner);
  if (before === undefined || typeof name !== "string" || foundAt.has(value)) return;
  foundAt.set(value, before === "" ? name : `${before}.${name}`);
}

/**
 * Returns the path of the called method. Objects of one class share their methods, so the path starts with the path of
 * the object.
 */
function methodOf({ foundAt }: Wrapping, { fn, self }: Call): string | undefined {
  const path = foundAt.get(fn);
  const owner = isReference(self) ? foundAt.get(self) : undefined;
  if (path === undefined || owner === undefined) return path;
  const name = path.slice(path.lastIndexOf(".") + 1);
  return owner === "" ? name : `${owner}.${name}`;
}

/**
 * Creates a substitute for the proxy's target. A proxy of the real object would have to return frozen methods
 * unwrapped.
 */
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

/**
 * True if a property must not be wrapped. Classes stay unwrapped so that `instanceof` works, and so do the properties
 * of every function, such as `bind`.
 */
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

/**
 * Checks that a method's path exists in the client. The check stops at the first getter, proxy or `*`.
 *
 * @throws {@link InvalidOptionError} when the path names a property that does not exist.
 */
function assertPathLeads(where: string, client: object, option: string, path: string): void {
  const names = path.split(".");
  let at: unknown = client;
  for (const [index, name] of names.entries()) {
    if (name.startsWith("*") || !isReference(at) || (index > 0 && types.isProxy(at))) return;
    if (!(name in at)) {
      const before = names.slice(0, index);
      const remedy = `${before.join(".") || "the client"} has no ${describeValue(name)}; ${hintOf(at, before, name)}`;
      throw new InvalidOptionError({ where, option, value: path, remedy });
    }
    at = plainValueOf(at, name);
  }
}

function hintOf(at: object, before: readonly string[], name: string): string {
  const near = closest(name, namesOf(at));
  if (near === undefined) return "write the path from the client on";
  return `did you mean ${[...before, near].join(".")}?`;
}

/** Returns the value of a plain property. Undefined for a getter, because calling a getter may have side effects. */
function plainValueOf(target: object, name: string): unknown {
  for (let at: object | null = target; at !== null; at = Reflect.getPrototypeOf(at)) {
    const property = Reflect.getOwnPropertyDescriptor(at, name);
    if (property !== undefined) return property.value;
  }
  return undefined;
}

function namesOf(target: object): readonly string[] {
  const above = Reflect.getPrototypeOf(target);
  const isBuiltIn = above === null || above === Object.prototype || above === Function.prototype;
  const own = Reflect.ownKeys(target).filter((name) => typeof name === "string");
  return isBuiltIn ? own : [...own, ...namesOf(above)];
}

/**
 * True if an object may have methods to pace. Built-in objects of JavaScript or Node, such as arrays, Maps and URLs,
 * have none.
 */
function isNamespace(value: object): boolean {
  // Any class may set its own `Symbol.toStringTag`, so an unusual tag alone does not make an object built-in.
  return Object.prototype.toString.call(value) === "[object Object]" || !isBuiltIn(value);
}

function isReference(value: unknown): value is object {
  return (typeof value === "object" && value !== null) || typeof value === "function";
}

function isBuiltIn(value: object): boolean {
  let at = Reflect.getPrototypeOf(value);
  while (at !== null) {
    const above = Reflect.getPrototypeOf(at);
    // Skips the last prototype, because all objects share it.
    if (
      above !== null &&
      isBuiltInClass(Reflect.getOwnPropertyDescriptor(at, "constructor")?.value)
    )
      return true;
    at = above;
  }
  return false;
}

/**
 * True for a built-in class. Classes of JavaScript are native, and classes of Node are global. EventTarget does not
 * count, because clients extend it.
 */
function isBuiltInClass(made: unknown): boolean {
  if (typeof made !== "function" || made === EventTarget) return false;
  const isNative = Function.prototype.toString.call(made).endsWith("{ [native code] }");
  return isNative || Reflect.get(globalThis, made.name) === made;
}

/**
 * The property paths at which clients store their number of retries: OpenAI, Anthropic, Stripe and Slack, and the parts
 * of these clients.
 */
const RETRY_OPTIONS: readonly (readonly string[])[] = [
  ["maxRetries"],
  ["_client", "maxRetries"],
  ["_api", "maxNetworkRetries"],
  ["_stripe", "_api", "maxNetworkRetries"],
  ["retryConfig", "retries"],
];

const warned = new WeakSet<object>();

/** Logs one warning for each bucket if its client retries by itself, because such retries use no slots. */
function warnOfOwnRetries(client: object, bucket: object): void {
  const { logger, name } = bucket as Partial<Pick<OwnedBucket, "logger" | "name">>;
  if (logger === undefined || warned.has(bucket)) return;
  for (const place of RETRY_OPTIONS) {
    const retries = valueAt(client, place);
    if (typeof retries !== "number" || !(retries > 0)) continue;
    warned.add(bucket);
    const option = place.at(-1)!;
    const remedy = `set ${option} to 0, or give the client the bucket's fetch (docs/reference/refusals.md)`;
    const problem = `a client that retries by itself (${option}: ${retries}), and its retries use no slots; ${remedy}. This is logged once.`;
    logger.warn({ bucket: name, [option]: retries }, `throttledClient() wraps ${problem}`);
    return;
  }
}

/**
 * Returns the value at a path of plain properties. Undefined if the path contains a getter or a Proxy, because reading
 * those may have side effects.
 */
function valueAt(client: object, path: readonly string[]): unknown {
  let at: unknown = client;
  for (const name of path) {
    if (typeof at !== "object" || at === null || types.isProxy(at)) return undefined;
    at = Reflect.getOwnPropertyDescriptor(at, name)?.value;
  }
  return at;
}

/** The result of the client's own method, such as OpenAI's `APIPromise`. It may have more methods than a promise. */
type Own = Readonly<Record<PropertyKey, unknown>>;

/** A method call on the client's result in place of `await`, such as `withResponse()`. */
interface Use {
  readonly name: string;
  readonly args: readonly unknown[];
}

/** Waits for a slot and makes the call. Applies `use` to the client's result as soon as the call starts. */
type Pace = (use: (own: unknown) => unknown) => Promise<unknown>;

/**
 * Names that tools look up on any value. The promise has no methods with these names, because tools would misunderstand
 * them.
 */
const NO_METHODS: ReadonlySet<string> = new Set([
  "toJSON",
  "inspect",
  "asymmetricMatch",
  "$$typeof",
  "nodeType",
  "tagName",
  "hasAttribute",
  "_isMockFunction",
  "length",
]);

/**
 * The promise of a paced method. The caller's first use decides how the client's result is read: `asResponse()` must
 * not get a body that `then` has already parsed. The promise also has the methods of the client's result. They wait for
 * the call.
 */
class PacedPromise extends Promise<unknown> {
  static override get [Symbol.species](): PromiseConstructor {
    return Promise;
  }

  readonly #calling: Promise<unknown>;
  #own: unknown;
  #use: Use | undefined;

  constructor(pace: Pace) {
    super((resolve) => resolve(undefined));
    this.#calling = pace((own) => {
      this.#own = own;
      return this.#use === undefined ? own : apply(own, this.#use);
    });
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<unknown> {
    const value = await this.awaited();
    // Some clients return a promise of pages that is iterable itself.
    const own = this.#own as Partial<AsyncIterable<unknown>> | null | undefined;
    const isIterable = typeof own?.[Symbol.asyncIterator] === "function";
    yield* (isIterable ? own : value) as AsyncIterable<unknown>;
  }

  /** Calls a method of the client's result after the call has started. */
  async use(use: Use): Promise<unknown> {
    this.#use ??= use;
    const value = await this.#calling;
    return this.#use === use ? value : apply(this.#own, use);
  }

  /** Resolves to the value of the client's own promise. */
  async awaited(): Promise<unknown> {
    const value = await this.#calling;
    return this.#use === undefined ? value : this.#own;
  }
}

/** The prototype of paced promises. It adds the methods of the client's result to those of promises. */
const WITH_METHODS_OF_CLIENTS = new Proxy(PacedPromise.prototype, {
  get(target, name, promise: PacedPromise) {
    const isMethod = typeof name === "string" && !(name in target) && !NO_METHODS.has(name);
    // Only `then` needs this, because a promise's `catch` and `finally` call `then`.
    if (name === "then") {
      return (...args: Parameters<Promise<unknown>["then"]>) => promise.awaited().then(...args);
    }
    if (!isMethod) return Reflect.get(target, name, promise);
    return (...args: readonly unknown[]) => promise.use({ name, args });
  },
});

function pacedPromise(pace: Pace): Promise<unknown> {
  return Object.setPrototypeOf(new PacedPromise(pace), WITH_METHODS_OF_CLIENTS) as Promise<unknown>;
}

function apply(own: unknown, { name, args }: Use): unknown {
  const method = (own as Own | null | undefined)?.[name];
  if (typeof method === "function") return Reflect.apply(method, own, args);
  throw new TypeError(`The result of the client's method has no method "${name}"`);
}
