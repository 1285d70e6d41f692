/** The types of wrapped functions. Their results become promises, and everything else stays the same. */
import type {
  AnyFunction,
  CallOptions,
  DrawOptions,
  ResultOf,
  ThrottledOptions,
} from "../call-options.ts";

/** The same function, but each call waits for its slot. A plain result becomes a promise. */
export type Throttled<F extends AnyFunction> = (ReturnsPromise<F> extends true
  ? F
  : InPromises<F>) & {
  /** Returns the same function with other options for its calls. */
  with(options: DrawOptions): Throttled<F>;
};

/** The type of `bucket.throttled`, which wraps a function. */
export interface Throttle {
  // The condition is on `this`, because in any other position it would make a generic function lose its type
  // parameters.
  <F extends AnyFunction>(this: NotGeneric<F>, fn: F, options?: ThrottledOptions<F>): Throttled<F>;
  /**
   * Keeps a generic function generic if its result is not a promise. TypeScript cannot type the `with` of such a
   * function; use `run` instead.
   */
  <Args extends unknown[], Result>(
    fn: (...args: Args) => Result,
    options?: CallOptions<Args, ResultOf<Result>>,
  ): (...args: Args) => Promise<Awaited<Result>>;
  /** For code that is generic in the function's type and passes this type explicitly: `throttled<F>(fn)`. */
  <F extends AnyFunction>(fn: F, options?: ThrottledOptions<F>): Throttled<F>;
}

/**
 * `never` for a generic function whose result must become a promise, because mapping the function's type would lose its
 * type parameters. `unknown` for all other functions.
 */
export type NotGeneric<F extends AnyFunction> =
  ReturnsPromise<F> extends true
    ? unknown
    : F extends new (...args: never[]) => unknown
      ? unknown
      : IsOneSignature<F> extends true
        ? unknown
        : SignaturesOf<F> & Pick<F, keyof F> extends F
          ? unknown
          : never;

type IsOneSignature<F extends AnyFunction> = OneSignature<F> & Pick<F, keyof F> extends F
  ? true
  : false;
type OneSignature<F extends AnyFunction> = (
  this: ThisParameterType<F>,
  ...args: Parameters<F>
) => ReturnType<F>;

/** All signatures of a function, with their results changed to promises. */
type InPromises<F extends AnyFunction> =
  IsOneSignature<F> extends true
    ? (this: ThisParameterType<F>, ...args: Parameters<F>) => Promise<Awaited<ReturnType<F>>>
    : SignaturesOf<F, "in promises">;

/** True if every overload returns a promise. `ReturnType` alone sees only one overload. */
type ReturnsPromise<F extends AnyFunction> = [ReturnType<F>] extends [never]
  ? false
  : [ResultsOf<F>] extends [Promise<unknown>]
    ? true
    : false;
type ResultsOf<F extends AnyFunction> =
  F extends Overloads<
    infer _T1,
    infer _A1,
    infer R1,
    infer _T2,
    infer _A2,
    infer R2,
    infer _T3,
    infer _A3,
    infer R3,
    infer _T4,
    infer _A4,
    infer R4
  >
    ? R1 | R2 | R3 | R4
    : ReturnType<F>;

/** The last four overloads of a function, unchanged or with their results changed to promises. */
type SignaturesOf<F extends AnyFunction, How extends "as it is" | "in promises" = "as it is"> =
  F extends Overloads<
    infer T1,
    infer A1,
    infer R1,
    infer T2,
    infer A2,
    infer R2,
    infer T3,
    infer A3,
    infer R3,
    infer T4,
    infer A4,
    infer R4
  >
    ? Signature<How, T1, A1, R1> &
        Signature<How, T2, A2, R2> &
        Signature<How, T3, A3, R3> &
        Signature<How, T4, A4, R4>
    : never;

interface Overloads<
  T1,
  A1 extends unknown[],
  R1,
  T2,
  A2 extends unknown[],
  R2,
  T3,
  A3 extends unknown[],
  R3,
  T4,
  A4 extends unknown[],
  R4,
> {
  (this: T1, ...args: A1): R1;
  (this: T2, ...args: A2): R2;
  (this: T3, ...args: A3): R3;
  (this: T4, ...args: A4): R4;
}

/**
 * The signature of one overload. If the function has fewer overloads, a missing one is `unknown`, because its signature
 * would accept any arguments.
 */
type Signature<How, This, Args extends unknown[], Result> = [unknown[], unknown] extends [
  Args,
  Result,
]
  ? unknown
  : (this: This, ...args: Args) => How extends "in promises" ? Promise<Awaited<Result>> : Result;
