import type { DrawOptions } from "./draw-options.ts";

export type FetchFunction = typeof globalThis.fetch;

/** The `fetch` of a bucket; `with` gives one whose calls draw with other options. */
export type ThrottledFetch = FetchFunction & {
  with(options: DrawOptions): ThrottledFetch;
};
