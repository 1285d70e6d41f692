/** The known name that a mistyped one most likely meant, or undefined if none is near. */
export function closest(name: string, known: readonly string[]): string | undefined {
  const byDistance = known
    .map((candidate) => ({ candidate, distance: distance(name, candidate) }))
    .sort((a, b) => a.distance - b.distance);
  const best = byDistance[0];
  if (best === undefined) return undefined;
  const isPrefix = name.length >= 3 && best.candidate.startsWith(name);
  return isPrefix || best.distance <= Math.ceil(name.length / 3) ? best.candidate : undefined;
}

/** Levenshtein distance, without regard to case; names are short. */
function distance(a: string, b: string): number {
  const from = a.slice(0, 40).toLowerCase();
  const to = b.toLowerCase();
  let row = Array.from({ length: to.length + 1 }, (_, index) => index);
  for (let i = 1; i <= from.length; i++) {
    const next = [i];
    for (let j = 1; j <= to.length; j++) {
      const replaced = row[j - 1]! + (from[i - 1] === to[j - 1] ? 0 : 1);
      next.push(Math.min(replaced, row[j]! + 1, next[j - 1]! + 1));
    }
    row = next;
  }
  return row[to.length]!;
}
