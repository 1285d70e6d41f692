import { openBucket, type BucketState } from "./bucket-state.ts";
import { CostTooLargeError } from "./errors.ts";
import { takeHoles } from "./holes.ts";
import { drainUs, excessOf, fitWithin } from "./limits/leaky-bucket.ts";
import type { DrawReply, DrawRequest } from "./store.ts";
import { countAlive, countTurns, forgetGone, shareOf } from "./turns.ts";

/**
 * Books up to `wanted` slots within the horizon; an asker whose slots lie
 * farther ahead keeps a turn instead, at which to ask again.
 *
 * A horizon's slots are shared out evenly to all who draw, so that the others'
 * are booked ahead when one's turn comes, and nobody runs dry before.
 * Twin of `lua/slots-draw.lua`.
 *
 * @throws {@link CostTooLargeError} when a call costs more than the burst; nothing is changed then.
 */
export function draw(
  found: BucketState | undefined,
  request: DrawRequest,
  serverUs: number,
): { readonly state: BucketState; readonly reply: DrawReply } {
  const { bucket, wanted, cost, horizonUs, drewUs } = request;
  const state = openBucket(found, request, serverUs);
  const { policy, clockUs: nowUs } = state;
  if (cost > policy.burst) throw new CostTooLargeError({ bucket, cost, maxCost: policy.burst });

  const sinceUs = nowUs - Math.floor(horizonUs / 2);
  const ownTurnUs = request.turnUs >= sinceUs ? request.turnUs : undefined;
  const stepLevel = cost * policy.periodUs;
  const perHorizon = horizonUs * policy.count + policy.burst * policy.periodUs;
  const { isNew, ...window } = countAlive(state.window, { nowUs, drewUs });
  state.window = window;
  const alive = Math.max(1, window.alive, window.aliveBefore);
  const share = shareOf(Math.floor(perHorizon / stepLevel), alive);
  const most = Math.min(wanted, share);

  const recycledUs = takeHoles(state, { cost, most, horizonUs });
  const excess = excessOf(policy, state.level, cost);
  const ahead = countTurns(state.turns, sinceUs, ownTurnUs);
  const free = fitWithin(policy, { excess, cost, horizonUs }) - ahead * share;
  const wished = most - recycledUs.length;
  // A crumb is left to those whose turn comes first: it would cost a draw, and their share its fullness.
  const granted = ahead > 0 && free < wished ? 0 : Math.max(0, Math.min(wished, free));
  state.level += granted * stepLevel;

  const left = wanted - recycledUs.length - granted;
  const isServed = left < wanted && ownTurnUs !== undefined;
  const others = (): number => Math.max(0, countTurns(state.turns, sinceUs) - 1);
  const before = isServed ? others() : ahead;
  const nextExcess = excess + granted * stepLevel;
  const needed = (before * share + Math.min(left, share) - 1) * stepLevel;
  const turnUs =
    left === 0 ? 0 : nowUs + Math.max(0, drainUs(policy, nextExcess + needed) - horizonUs);
  keepTurn(state, request.asker, { turnUs, sinceUs, isNewWindow: isNew });

  const { generation } = state;
  return { state, reply: { nowUs, policy, generation, recycledUs, granted, excess, turnUs } };
}

/** The asker's turn goes to the end; 0 is none. */
function keepTurn(
  { turns }: BucketState,
  asker: string,
  { turnUs, sinceUs, isNewWindow }: { turnUs: number; sinceUs: number; isNewWindow: boolean },
): void {
  const isNewAsker = !turns.has(asker);
  if (turnUs === 0) turns.delete(asker);
  else turns.set(asker, turnUs);
  if (turnUs !== 0 && (isNewAsker || isNewWindow)) forgetGone(turns, sinceUs);
}
