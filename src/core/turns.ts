/**
 * Who draws from a bucket, and whose turn comes when, so that askers who were
 * told to come back neither race nor starve. Twin of `lua/lib/turns.lua`.
 */

/** An asker counts as alive in the second in which it drew, and in the next. */
const WINDOW_US = 1_000_000;

/** A waiting asker looks in at least this often, so that a live change reaches it within a second. */
export const LOOK_IN_US = 500_000;

export interface AliveWindow {
  readonly windowUs: number;
  readonly alive: number;
  readonly aliveBefore: number;
}

/** Counts the askers of each second. Each says when it drew last, so that no list of them is needed. */
export function countAlive(
  { windowUs, alive, aliveBefore }: AliveWindow,
  { nowUs, drewUs }: { nowUs: number; drewUs: number },
): AliveWindow & { readonly isNew: boolean } {
  const ageUs = nowUs - windowUs;
  const isNew = ageUs >= WINDOW_US;
  const startUs = isNew ? nowUs : windowUs;
  const isFirstDraw = drewUs === 0 || drewUs < startUs;
  return {
    windowUs: startUs,
    alive: (isNew ? 0 : alive) + (isFirstDraw ? 1 : 0),
    aliveBefore: isNew ? (ageUs < 2 * WINDOW_US ? alive : 0) : aliveBefore,
    isNew,
  };
}

/** An even share of a horizon; one alone leaves a quarter, so that it can ask again before it runs dry. */
export function shareOf(slots: number, alive: number): number {
  return Math.max(1, Math.floor(Math.min(slots * 0.75, slots / alive)));
}

/** How many askers have their turn at or after `sinceUs` and before `untilUs`. */
export function countTurns(
  turns: ReadonlyMap<string, number>,
  sinceUs: number,
  untilUs: number = Infinity,
): number {
  let count = 0;
  for (const turnUs of turns.values()) if (turnUs >= sinceUs && turnUs < untilUs) count += 1;
  return count;
}

/** Forgets askers that never came back. */
export function forgetGone(turns: Map<string, number>, sinceUs: number): void {
  for (const [asker, turnUs] of turns) if (turnUs < sinceUs) turns.delete(asker);
}
