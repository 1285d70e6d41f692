import { distance } from "fastest-levenshtein";

/** A longer name is cut: it comes from a user, and the known ones are short. */
const LONGEST_NAME = 40;

/** The known name that a mistyped one most likely meant, or undefined if none is near. */
export function closest(name: string, known: readonly string[]): string | undefined {
  const mistyped = name.slice(0, LONGEST_NAME).toLowerCase();
  const byDistance = known
    .map((candidate) => ({ candidate, distance: distance(mistyped, candidate.toLowerCase()) }))
    .sort((a, b) => a.distance - b.distance);
  const best = byDistance[0];
  if (best === undefined) return undefined;
  const isPrefix = name.length >= 3 && best.candidate.startsWith(name);
  return isPrefix || best.distance <= Math.ceil(name.length / 3) ? best.candidate : undefined;
}
