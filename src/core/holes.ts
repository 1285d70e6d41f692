/** A slot that was booked and given back. Twin of a member in `lua/lib/holes.lua`. */
export interface Hole {
  readonly slotUs: number;
  /** Which calls it was booked for. */
  readonly name: string;
  /** Tells apart slots of one µs; Redis orders equal times by its bytes. */
  readonly id: string;
}

/** The part of a bucket's state that keeps them. */
interface WithHoles {
  holes: readonly Hole[];
  readonly clockUs: number;
}

/** Lua cannot reply with some thousands of values at once. */
const MOST_TAKEN = 1_000;

/** Takes the earliest slots that others gave back, and forgets those whose time has passed. */
export function takeHoles(
  state: WithHoles,
  { name, most, untilUs }: { name: string; most: number; untilUs: number },
): number[] {
  if (state.holes.length === 0) return [];
  const nowUs = state.clockUs;
  const coming = state.holes.filter((hole) => hole.slotUs > nowUs);
  const near = coming.filter((hole) => hole.slotUs <= untilUs).slice(0, Math.min(most, MOST_TAKEN));
  const taken = new Set(near.filter((hole) => hole.name === name));
  state.holes = coming.filter((hole) => !taken.has(hole));
  return [...taken].map((hole) => hole.slotUs);
}

/** Adds holes, in the order of their times; one that is there already stays one. */
export function addHoles(to: readonly Hole[], added: readonly Hole[]): Hole[] {
  const byId = new Map([...to, ...added].map((hole) => [hole.id, hole]));
  return [...byId.values()].sort((a, b) => a.slotUs - b.slotUs || (a.id < b.id ? -1 : 1));
}
