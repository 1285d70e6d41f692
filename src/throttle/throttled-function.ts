import type { CallOptions, DrawOptions } from "./draw-options.ts";

/** Any function that can be wrapped. */
export type AnyFunction = (...args: never[]) => unknown;

/** How the calls of one wrapped function draw; key and cost may depend on the arguments. */
export type ThrottledOptions<F extends AnyFunction> = CallOptions<
  Parameters<F>,
  Awaited<ReturnType<F>>
>;

/** The same function, but each call waits for its slot; a plain result becomes a promise. */
export type Throttled<F extends AnyFunction> = (F extends (...args: never[]) => Promise<unknown>
  ? F
  : (this: ThisParameterType<F>, ...args: Parameters<F>) => Promise<Awaited<ReturnType<F>>>) & {
  /** The same function with other options for the calls made through it. */
  with(options: DrawOptions): Throttled<F>;
};
