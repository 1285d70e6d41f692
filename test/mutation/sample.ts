import { createHash } from "node:crypto";

/** The same `size` of these for the same seed, whatever their order; all of them without a size. */
export function sampleOf<T>(
  all: readonly T[],
  nameOf: (each: T) => string,
  { size, seed }: { readonly size: number | undefined; readonly seed: number },
): readonly T[] {
  if (size === undefined) return all;
  return all
    .map((each) => ({ each, rank: rankOf(`${seed} ${nameOf(each)}`) }))
    .toSorted((a, b) => (a.rank < b.rank ? -1 : 1))
    .slice(0, size)
    .map(({ each }) => each);
}

function rankOf(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}
