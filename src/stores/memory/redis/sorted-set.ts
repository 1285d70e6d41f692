/** A member and its score. Entries are sorted by score, then by member. */
interface Entry {
  readonly member: string;
  readonly score: number;
}

/** A range of scores. Each boundary is included unless its flag excludes it. */
export interface ScoreRange {
  readonly least: number;
  readonly isLeastOut: boolean;
  readonly most: number;
  readonly isMostOut: boolean;
}

/** A Redis sorted set: a sorted array with binary search. */
export interface SortedSet {
  readonly scores: Map<string, number>;
  readonly entries: Entry[];
}

export function createSortedSet(): SortedSet {
  return { scores: new Map(), entries: [] };
}

/** Adds a member or moves it to a new score. Returns true if the member is new. */
export function addEntry({ scores, entries }: SortedSet, member: string, score: number): boolean {
  const before = scores.get(member);
  if (before === score) return false;
  if (before !== undefined) entries.splice(rankOf(entries, member, before), 1);
  scores.set(member, score);
  const entry = { member, score };
  const last = entries[entries.length - 1];
  if (last === undefined || isBefore(last, member, score)) entries.push(entry);
  else entries.splice(rankOf(entries, member, score), 0, entry);
  return before === undefined;
}

export function removeEntry({ scores, entries }: SortedSet, member: string): boolean {
  const score = scores.get(member);
  if (score === undefined) return false;
  scores.delete(member);
  entries.splice(rankOf(entries, member, score), 1);
  return true;
}

/** Returns the rank of a member. Undefined if the set does not contain the member. */
export function rankOfMember({ scores, entries }: SortedSet, member: string): number | undefined {
  const score = scores.get(member);
  return score === undefined ? undefined : rankOf(entries, member, score);
}

/** Removes the entries from rank `from` up to rank `to`, which is not removed. */
export function removeRanks({ scores, entries }: SortedSet, from: number, to: number): number {
  if (to <= from) return 0;
  const removed = entries.splice(from, to - from);
  for (const { member } of removed) scores.delete(member);
  return removed.length;
}

/**
 * Converts a range of scores to ranks: the first rank in the range, and the rank after the last
 * one.
 */
export function ranksOf(
  { entries }: SortedSet,
  { least, isLeastOut, most, isMostOut }: ScoreRange,
): readonly [from: number, to: number] {
  const from = rankOfScore(entries, least, isLeastOut);
  return [from, most === Infinity ? entries.length : rankOfScore(entries, most, !isMostOut)];
}

/**
 * Returns the rank of the first entry whose score is at least `score`. With `isAbove`, the entry's
 * score must be higher.
 */
function rankOfScore(entries: readonly Entry[], score: number, isAbove: boolean): number {
  let low = 0;
  let high = score === -Infinity ? 0 : entries.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    const own = entries[middle]!.score;
    if (own > score || (own === score && !isAbove)) high = middle;
    else low = middle + 1;
  }
  return low;
}

function isBefore(entry: Entry, member: string, score: number): boolean {
  return entry.score < score || (entry.score === score && entry.member < member);
}

function rankOf(entries: readonly Entry[], member: string, score: number): number {
  let low = 0;
  let high = entries.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (isBefore(entries[middle]!, member, score)) low = middle + 1;
    else high = middle;
  }
  return low;
}
