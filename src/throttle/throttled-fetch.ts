import type { ThrottledOptions } from "./throttled-function.ts";

export type FetchFunction = typeof globalThis.fetch;

/**
 * How requests draw. `key` and `cost` may be functions of what `fetch` is given: `(input, init) => …`. `settle` gets a
 * copy of the answer, whose body comes as the caller reads the answer's own.
 */
export type FetchOptions = Omit<ThrottledOptions<FetchFunction>, "concurrency">;

/** The `fetch` of a bucket; `with` gives one whose calls draw with other options. */
export type ThrottledFetch = FetchFunction & {
  with(options: FetchOptions): ThrottledFetch;
};
