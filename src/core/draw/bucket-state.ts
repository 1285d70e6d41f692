import { ruleOf } from "../limits/registry.ts";
import { nobodyAt, type Limit } from "../limits/rule.ts";
import type { DrawRequest, KnownTerms } from "../store.ts";
import { applyLimits, freshScope, remainingOf, type Scope } from "./scope.ts";
import type { AliveWindow } from "./turns.ts";

/** All that is known of one bucket. Twin of what `lua/lib/state/bucket.lua` loads and saves. */
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

/**
 * What follows when Redis has lost what a bucket had let pass: a restart without its log, a failover
 * to a replica that lagged behind, an operator's mistake. Twin of `lua/lib/state/lost-state.lua`.
 */

/** A bucket that was drawn from is kept for this long at least. */
const KEPT_US = 3_600_000_000;
/** A window up to this long counts as used up; a longer one that was lost must not block a day. */
const SHORT_US = 60_000_000;

/** As the time of an asker's last draw: it has let calls pass that the bucket knows nothing of. */
export const DREW_ELSEWHERE_US: number = 2 ** 52;

/** Whether the asker knows of draws, or of a policy, that the bucket has forgotten. */
export function isStateLost(
  found: BucketState | undefined,
  { drewUs, startsFull, terms }: Pick<DrawRequest, "drewUs" | "startsFull" | "terms">,
  serverUs: number,
): boolean {
  if (drewUs === 0 || startsFull === true) return false;
  // One that nobody drew from for so long has expired, and had drained long before.
  if (found === undefined) return serverUs < drewUs + KEPT_US;
  return drewUs > found.clockUs || terms.version > found.version;
}

/** Books all that the limits would let pass at once, as if a burst had just left. */
export function startEmptyHanded(scope: Scope, nowUs: number): void {
  const atUs = Math.max(nowUs, scope.lastUs);
  for (const { limit, state } of scope.records) {
    if (!canStartEmptyHanded(limit)) continue;
    const spare = remainingOf(limit, state, atUs);
    if (spare > 0) ruleOf(limit.kind).commit(limit, state, atUs, spare, nobodyAt(nowUs));
  }
}

function canStartEmptyHanded({ kind, periodUs }: Limit): boolean {
  const { isRate, doesDrain = false } = ruleOf(kind);
  return isRate && (doesDrain || periodUs <= SHORT_US);
}

/** A slot that was booked and given back. Twin of a member in `lua/lib/state/holes.lua`. */
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
