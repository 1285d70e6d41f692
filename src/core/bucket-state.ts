import type { Hole } from "./holes.ts";
import { convertLevel, leak, type LeakyBucket } from "./limits/leaky-bucket.ts";
import { isSamePolicy } from "./policy.ts";
import type { DrawRequest } from "./store.ts";
import type { AliveWindow } from "./turns.ts";

/** All that is known of one bucket. Twin of what `lua/lib/bucket.lua` loads and saves. */
export interface BucketState {
  policy: LeakyBucket;
  /** Grows with each change of the policy: the µs at which the newest was declared. */
  generation: number;
  /** Work booked ahead of the clock, in cost × period. */
  level: number;
  /** The bucket's own clock, in µs; it never goes back. */
  clockUs: number;
  /** How far the bucket's clock runs ahead of the server's since the server's went back. */
  skewUs: number;
  /** How many draw from it. */
  window: AliveWindow;
  /** Asker to the µs of its next turn. */
  turns: Map<string, number>;
  /** Slots given back, in the order of their times. */
  holes: readonly Hole[];
}

/**
 * The bucket as the asker finds it: its clock moved on, its level leaked, and
 * the newest policy in force. A lost state is made anew from what the asker knows.
 */
export function openBucket(
  found: BucketState | undefined,
  { policy, generation }: Pick<DrawRequest, "policy" | "generation">,
  serverUs: number,
): BucketState {
  if (found === undefined) {
    return {
      policy,
      generation: generation > 0 ? generation : serverUs,
      level: 0,
      clockUs: serverUs,
      skewUs: 0,
      window: { windowUs: serverUs, alive: 0, aliveBefore: 0 },
      turns: new Map(),
      holes: [],
    };
  }
  const state = advance(found, serverUs);
  const isDeclared = generation === 0 && !isSamePolicy(state.policy, policy);
  if (isDeclared) return changePolicy(state, policy, Math.max(serverUs, state.generation + 1));
  return generation > state.generation ? changePolicy(state, policy, generation) : state;
}

/** A server whose clock stepped back neither stalls the bucket nor lets it book a time twice. */
export function advance(state: BucketState, serverUs: number): BucketState {
  const clockUs = Math.max(serverUs + state.skewUs, state.clockUs);
  const level = leak(state.policy, state.level, clockUs - state.clockUs);
  return { ...state, level, clockUs, skewUs: clockUs - serverUs };
}

function changePolicy(state: BucketState, policy: LeakyBucket, generation: number): BucketState {
  if (isSamePolicy(state.policy, policy)) return { ...state, generation };
  const level = convertLevel(state.policy, policy, state.level);
  return { ...state, policy, generation, level, turns: new Map(), holes: [] };
}
