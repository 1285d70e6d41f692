import { opensAtUs } from "./gaps.ts";
import type { Fitting, Serving } from "./place.ts";
import { agreeUs } from "./scope.ts";
import { slotsBefore } from "./turns.ts";

/** What the others decide of a call of a key. */
interface Others {
  readonly serving: Serving;
  readonly main: Fitting;
  readonly untilUs: number;
}

/** A slot that the others would give to a call of a key. */
interface Offer {
  /** The first slot that they would have given in this draw. */
  readonly firstUs: number;
  readonly slotUs: number;
  /** Whether this draw has given the key's calls slots already. */
  readonly isServed: boolean;
}

type Passed =
  | { readonly startUs: number; readonly deferredUs?: undefined }
  | { readonly deferredUs: number };

/**
 * So far from now a slot may be pushed back to suit a key: its calls keep to its rate, although each is asked for a little
 * late, and the others wait for no more than that.
 */
const MOST_PUSHED_US = 2_000;
/** So long after a try at the earliest: who tries looks no further than now, and would be refused for what was pushed. */
const UNTRIED_US = 3_600_000_000;

/** When the key lets such a call start; if it does not, when to ask again. Twin of `lua/lib/gate.lua`. */
export function passGate(
  { serving, main, untilUs }: Others,
  gate: Fitting,
  { firstUs, slotUs, isServed }: Offer,
): Passed {
  const { scope, stepUs, costs, claim, own, drawer } = gate;
  const { nowUs } = drawer;
  // One that has been served stands behind all others.
  const isDue = !isServed && own.turnUs >= claim.sinceUs;
  const slotsLeft = (rank: number): number =>
    slotsBefore(scope, { ...claim, rank, share: 1 }, own, isDue ? own.turnUs : Infinity);
  // Who waits for a turn with the others comes at that, and what is left for it meanwhile is lost, but to more urgent calls.
  const isContended = main.scope.turnsUntilUs >= main.claim.sinceUs;
  const left = slotsLeft(isContended ? claim.rank - 1 : claim.rank);
  const passesUs = agreeUs(scope, opensAtUs(scope, nowUs, stepUs), costs, drawer);
  const startUs = Math.max(slotUs, passesUs + Math.floor(left * stepUs));
  if (startUs === slotUs && letsPass(gate, startUs)) return { startUs };

  const before = isContended ? slotsLeft(claim.rank) : left;
  const isTried = serving.request.isTry || nowUs < serving.state.triedUs + UNTRIED_US;
  const pushUs = isTried ? 0 : Math.min(untilUs - nowUs, MOST_PUSHED_US);
  // Pushed behind those whose turn comes first, it would leave them nothing: the key's times only go forward, too.
  const isInReach = before === 0 && startUs <= nowUs + pushUs;
  if (isInReach && letsPass(gate, startUs) && letsPass(main, startUs)) return { startUs };
  // What the others give now lies so far ahead; later they will give as far.
  const turnUs = passesUs + Math.floor(before * stepUs);
  return { deferredUs: Math.max(nowUs, turnUs - Math.max(firstUs - nowUs, pushUs)) };
}

function letsPass({ scope, costs, drawer }: Fitting, atUs: number): boolean {
  return agreeUs(scope, atUs, costs, drawer) === atUs;
}
