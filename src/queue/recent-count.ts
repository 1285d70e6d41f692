/** Counts what happened of late, in steps of an eighth of its time. */
export interface RecentCount {
  add(atMs: number): void;
  count(nowMs: number): number;
}

const STEPS = 8;

export function createRecentCount(withinMs: number): RecentCount {
  const stepMs = withinMs / STEPS;
  const counts = Array.from({ length: STEPS }, () => 0);
  let latest = -Infinity;

  /** Steps that have gone by since the latest one are empty. */
  function moveTo(atMs: number): number {
    const step = Math.floor(atMs / stepMs);
    for (let each = Math.max(latest, step - STEPS) + 1; each <= step; each++) {
      counts[each % STEPS] = 0;
    }
    latest = Math.max(latest, step);
    return step % STEPS;
  }

  return {
    add(atMs) {
      counts[moveTo(atMs)]! += 1;
    },
    count(nowMs) {
      moveTo(nowMs);
      return counts.reduce((sum, each) => sum + each, 0);
    },
  };
}
