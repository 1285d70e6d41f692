/** What a paced method of a client returns: a promise with what the client's own promise can do, once the call has left. */

/** The client's own result, such as OpenAI's `APIPromise`, with methods beside those of a promise. */
type Own = Readonly<Record<PropertyKey, unknown>>;

/** A use of the client's result other than to await it: `withResponse()`. */
interface Use {
  readonly name: string;
  readonly args: readonly unknown[];
}

/** Makes the call in its slot; `use` says what its result is used for, by the time at which it leaves. */
type Pace = (use: (own: unknown) => unknown) => Promise<unknown>;

/** Names that tools ask any value for. A function there would be taken for something else. */
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
 * A promise whose result is first read in the way in which it is used first: `asResponse()` must not find a body that
 * `then` has parsed. Its other methods are those of the client's result, and wait for the call.
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
    // A promise of pages is iterable itself.
    const own = this.#own as Partial<AsyncIterable<unknown>> | null | undefined;
    const isIterable = typeof own?.[Symbol.asyncIterator] === "function";
    yield* (isIterable ? own : value) as AsyncIterable<unknown>;
  }

  /** Calls a method of the client's result. */
  async use(use: Use): Promise<unknown> {
    this.#use ??= use;
    const value = await this.#calling;
    return this.#use === use ? value : apply(this.#own, use);
  }

  /** What the client's own promise resolves to. */
  async awaited(): Promise<unknown> {
    const value = await this.#calling;
    return this.#use === undefined ? value : this.#own;
  }
}

/** The methods that the client's result has, and no promise. */
const WITH_METHODS_OF_CLIENTS = new Proxy(PacedPromise.prototype, {
  get(target, name, promise: PacedPromise) {
    const isMethod = typeof name === "string" && !(name in target) && !NO_METHODS.has(name);
    // `catch` and `finally` of a promise call its `then`.
    if (name === "then") {
      return (...args: Parameters<Promise<unknown>["then"]>) => promise.awaited().then(...args);
    }
    if (!isMethod) return Reflect.get(target, name, promise);
    return (...args: readonly unknown[]) => promise.use({ name, args });
  },
});

export function pacedPromise(pace: Pace): Promise<unknown> {
  return Object.setPrototypeOf(new PacedPromise(pace), WITH_METHODS_OF_CLIENTS) as Promise<unknown>;
}

function apply(own: unknown, { name, args }: Use): unknown {
  const method = (own as Own | null | undefined)?.[name];
  if (typeof method === "function") return Reflect.apply(method, own, args);
  throw new TypeError(`What the client's method returned has no method "${name}"`);
}
