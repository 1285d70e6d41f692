import type { Hole } from "./holes.ts";
import { applyLimits, freshScope, type Scope } from "./scope.ts";
import type { KnownTerms } from "./draw-messages.ts";
import type { AliveWindow } from "./turns.ts";

/** All that is known of one bucket. Twin of what `lua/lib/bucket.lua` loads and saves. */
export interface BucketState {
  /** Grows with each change that makes slots worthless: the µs of the newest. */
  generation: number;
  /** The µs at which the policy in force was declared. */
  version: number;
  /** Whether the policy was configured by hand, over what the code says. */
  isOverride: boolean;
  /** The policy in force, as processes learn it. */
  text: string;
  /** The bucket's own clock, in µs; it never goes back. */
  clockUs: number;
  /** How far the bucket's clock runs ahead of the server's since the server's went back. */
  skewUs: number;
  /** How many draw from it. */
  window: AliveWindow;
  /** When a try was last granted of what all keys share, in µs; 0: never. */
  triedUs: number;
  /** What all keys share. */
  shared: Scope;
  /** What each key has for itself. */
  keys: Map<string, Scope>;
  /** Slots given back, in the order of their times. */
  holes: readonly Hole[];
}

/** A lost state is made anew from what the asker knows. */
export function newBucket({ text, limits, version }: KnownTerms, serverUs: number): BucketState {
  const shared = freshScope();
  applyLimits(shared, limits, serverUs);
  const since = version > 0 ? version : serverUs;
  return {
    generation: since,
    version: since,
    isOverride: false,
    text,
    clockUs: serverUs,
    skewUs: 0,
    triedUs: 0,
    window: { windowUs: serverUs, alive: 0, aliveBefore: 0 },
    shared,
    keys: new Map(),
    holes: [],
  };
}

/** The bucket's own time: a server whose clock stepped back neither stalls it nor lets it book a time twice. */
export function clockAt({ skewUs, clockUs }: BucketState, serverUs: number): number {
  return Math.max(serverUs + skewUs, clockUs);
}

export function advance(state: BucketState, serverUs: number): void {
  const clockUs = clockAt(state, serverUs);
  state.skewUs = clockUs - serverUs;
  state.clockUs = clockUs;
}

/**
 * Settles which policy holds: the newest that was declared, unless one was
 * configured over it. False if it is another than the asker's.
 */
export function settleTerms(state: BucketState, terms: KnownTerms, serverUs: number): boolean {
  const { version, text, limits } = terms;
  const isSame = state.text === text;
  const isDeclared = version === 0 && !isSame && !state.isOverride;
  if (isDeclared) putInForce(state, terms, Math.max(serverUs, state.version + 1));
  // A higher one than the bucket's tells it of a state that Redis lost.
  else if (version > state.version && isSame) state.version = version;
  else if (version > state.version) putInForce(state, { text, limits }, version);
  return state.text === text;
}

/** What was booked stays booked where the limits are of the same kind; slots that are held are worthless. */
export function putInForce(
  state: BucketState,
  { text, limits }: Pick<KnownTerms, "text" | "limits">,
  version: number,
): void {
  applyLimits(state.shared, limits, state.clockUs);
  state.text = text;
  state.version = version;
  state.generation = Math.max(version, state.generation + 1);
  clearPlaces(state);
}

/** Turns and holes of another generation are worthless. */
export function clearPlaces(state: BucketState): void {
  state.shared.turns = new Map();
  state.shared.turnsUntilUs = 0;
  state.shared.unevenUntilUs = 0;
  state.holes = [];
}

/** The limits of a key as its asker knows them, with what was booked under them. */
export function scopeOfKey(state: BucketState, key: string): Scope {
  return state.keys.get(key) ?? freshScope();
}
