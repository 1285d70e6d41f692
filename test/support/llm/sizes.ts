/** Calls of all sizes, the same each time. */

/** A small generator of pseudo-random numbers (mulberry32). */
function randoms(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

export interface SizedCall {
  readonly prompt: string;
  readonly maxTokens: number;
  /** A part of the prompt that is read from a cache. */
  readonly cached: string | undefined;
  readonly isStreamed: boolean;
}

/** Prompts from a text and bounds of answers, of sizes whose logarithms are spread evenly. */
export function sizedCalls(
  text: string,
  { least, most, seed }: { readonly least: number; readonly most: number; readonly seed: number },
): () => SizedCall {
  const random = randoms(seed);
  const size = (): number =>
    Math.round(Math.exp(Math.log(least) + random() * Math.log(most / least)));
  const piece = (tokens: number): string => {
    const from = Math.floor(random() * (text.length - tokens * 4));
    return text.slice(from, from + tokens * 4);
  };
  return () => ({
    cached: random() < 0.3 ? piece(200) : undefined,
    prompt: piece(size()),
    maxTokens: Math.max(5, size()),
    isStreamed: random() < 0.3,
  });
}

/** A prompt of the system, with the mark by which each of the two caches it. */
export function markedForAnthropic(text: string) {
  return [{ type: "text" as const, text, cache_control: { type: "ephemeral" as const } }];
}

export function markedForBedrock(text: string): readonly object[] {
  return [{ text }, { cachePoint: { type: "default" } }];
}
