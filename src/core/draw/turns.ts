import type { Place } from "../store.ts";
import type { Scope } from "./scope.ts";

/**
 * How many replicas draw from a bucket, and when the turn of each comes, so that waiting replicas neither
 * race nor starve. Here a replica is an asker, by the name that it asks with. Twin of `lua/lib/draw/turns.lua`.
 */

/** An asker counts as alive in the second in which it drew, and in the next. */
const WINDOW_US = 1_000_000;

/** A waiting asker asks at least this often, so that a live change reaches it within a second. */
export const LONGEST_ASK_GAP_US = 500_000;

/** The rank of most calls. Turns that are all of this rank are counted and not read. */
const NORMAL_RANK = 2;

export interface AliveWindow {
  readonly windowUs: number;
  readonly alive: number;
  readonly aliveBefore: number;
}

/** Counts the askers of each second. Each says when it last drew, so no list of them is needed. */
export function countAsker(
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

/** An even share of a horizon. A lone asker leaves a quarter, so that it can ask again before its slots run out. */
export function shareOf(slots: number, alive: number): number {
  return Math.max(1, Math.floor(Math.min(slots * 0.75, slots / alive)));
}

/** An asker that wants slots of a scope. */
export interface Claim {
  readonly asker: string;
  readonly rank: number;
  /** How long one call occupies the scope, in whole µs. */
  readonly stepUs: number;
  /** How many calls of a horizon each asker may have. */
  readonly share: number;
  /** Whether one call may cost more than another. */
  readonly isCostly: boolean;
  /** Turns before it have been missed. */
  readonly sinceUs: number;
}

/**
 * How many slots, of the size of this asker's, to leave to turns before `untilUs`:
 * for each a share, or one call of its asker if that is larger.
 */
export function slotsBefore(scope: Scope, claim: Claim, own: Place, untilUs: number): number {
  const { rank, stepUs, share, sinceUs } = claim;
  if (scope.turnsUntilUs < sinceUs) return 0;
  const areAllNormal = scope.unevenUntilUs < sinceUs;
  if (areAllNormal && rank < NORMAL_RANK) return 0;
  const turns = [...scope.turns].filter(([, turnUs]) => turnUs >= sinceUs && turnUs < untilUs);
  if (areAllNormal) {
    const isOwnAmong = own.turnUs >= sinceUs && own.turnUs < untilUs;
    return Math.max(0, turns.length - (isOwnAmong ? 1 : 0)) * share;
  }
  let slots = 0;
  for (const [name] of turns) {
    if (name === own.turnName) continue;
    const [theirRank, theirStepUs] = name.split(" ", 2).map(Number) as [number, number];
    if (theirRank <= rank) slots += Math.max(share, Math.ceil(theirStepUs / stepUs));
  }
  return slots;
}

/** Sets the asker's next turn; a `turnUs` of 0 takes it away. */
export function keepTurn(
  scope: Scope,
  { asker, rank, stepUs, share, isCostly, sinceUs }: Claim,
  { turnName: ownName }: Place,
  { turnUs, isNewWindow }: { turnUs: number; isNewWindow: boolean },
): Pick<Place, "turnUs" | "turnName"> {
  const turnName = turnUs === 0 ? "" : `${rank} ${stepUs} ${asker}`;
  const isKnown = scope.turns.has(turnName);
  if (ownName !== turnName) scope.turns.delete(ownName);
  if (turnUs === 0) return { turnUs, turnName };
  scope.turns.set(turnName, turnUs);
  scope.turnsUntilUs = Math.max(scope.turnsUntilUs, turnUs);
  const isUneven = rank !== NORMAL_RANK || (isCostly && share === 1);
  if (isUneven) scope.unevenUntilUs = Math.max(scope.unevenUntilUs, turnUs);
  if (!isKnown || isNewWindow) forgetGone(scope.turns, sinceUs);
  return { turnUs, turnName };
}

/** Forgets askers that never came back. */
function forgetGone(turns: Map<string, number>, sinceUs: number): void {
  for (const [name, turnUs] of turns) if (turnUs < sinceUs) turns.delete(name);
}
