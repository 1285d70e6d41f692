import { ruleOf } from "../limits/registry.ts";
import { noDrawer, type Limit } from "../limits/rule.ts";
import type { DrawRequest, KnownTerms, PolicySource } from "../store.ts";
import { applyLimits, freshScope, remainingOf, type Scope } from "./scope.ts";
import type { Shadow } from "./shadows.ts";
import type { AliveWindow } from "./turns.ts";

/**
 * The state of one bucket, what a change of policy or a loss in Redis does to it, and its holes.
 * Twin of `lua/lib/state/bucket.lua`, `lua/lib/state/lost-state.lua` and `lua/lib/state/holes.lua`.
 */
export interface BucketState {
  /** The µs of the newest change that made slots worthless. */
  generation: number;
  /** The µs at which the policy in force was declared. */
  version: number;
  /** Where the policy in force comes from. */
  source: PolicySource;
  /** The policy in force, as replicas send it to each other. */
  text: string;
  /** The bucket's own clock, in µs; it never goes back. */
  clockUs: number;
  /** How far the bucket's clock is ahead of the server's, since the server's went back. */
  skewUs: number;
  /** How many askers draw from it. */
  window: AliveWindow;
  /** When the shared limits last granted a try, in µs; 0: never. */
  triedUs: number;
  /** The limits that all keys share. */
  shared: Scope;
  /** The limits that each key has for itself. */
  keys: Map<string, Scope>;
  /** Slots given back, in the order of their times. */
  holes: readonly Hole[];
  /** The limits that only count. */
  shadows: readonly Shadow[];
}

/** A new bucket, with the policy that the asker knows. */
export function newBucket({ text, limits, version }: KnownTerms, serverUs: number): BucketState {
  const shared = freshScope();
  applyLimits(shared, limits, serverUs);
  const since = version > 0 ? version : serverUs;
  return {
    generation: since,
    version: since,
    source: "code",
    text,
    clockUs: serverUs,
    skewUs: 0,
    triedUs: 0,
    window: { windowUs: serverUs, alive: 0, aliveBefore: 0 },
    shared,
    keys: new Map(),
    holes: [],
    shadows: [],
  };
}

/** The bucket's own time. When the server's clock goes back, the bucket neither stalls nor books a time twice. */
export function clockAt({ skewUs, clockUs }: BucketState, serverUs: number): number {
  return Math.max(serverUs + skewUs, clockUs);
}

export function advance(state: BucketState, serverUs: number): void {
  const clockUs = clockAt(state, serverUs);
  state.skewUs = clockUs - serverUs;
  state.clockUs = clockUs;
}

/**
 * Puts the newest declared policy in force, unless one was put over it.
 * False if the policy in force is not the asker's.
 */
export function settleTerms(state: BucketState, terms: KnownTerms, serverUs: number): boolean {
  const { version, text, limits } = terms;
  const isSame = state.text === text;
  const isDeclared = version === 0 && !isSame && state.source === "code";
  if (isDeclared) putInForce(state, terms, Math.max(serverUs, state.version + 1));
  // Redis lost a newer version of this policy.
  else if (version > state.version && isSame) state.version = version;
  else if (version > state.version) putInForce(state, { text, limits }, version);
  return state.text === text;
}

/** Puts a policy in force. What was booked stays booked where limits are of the same kind; handed-out slots are worthless. */
export function putInForce(
  state: BucketState,
  { text, limits }: Pick<KnownTerms, "text" | "limits">,
  version: number,
): void {
  applyLimits(state.shared, limits, state.clockUs);
  state.text = text;
  state.version = version;
  state.generation = Math.max(version, state.generation + 1);
  clearPositions(state);
}

/** Forgets turns and holes; those of an older generation are worthless. */
export function clearPositions(state: BucketState): void {
  state.shared.turns = [];
  state.shared.turnsUntilUs = 0;
  state.holes = [];
}

/** The scope of a key; a new one if the key has none. Twin of `load_key` in `lua/lib/state/load-and-save.lua`. */
export function scopeOfKey(state: BucketState, key: string): Scope {
  return state.keys.get(key) ?? freshScope();
}

/** Redis keeps a bucket for at least this long after a draw. */
const KEPT_US = 3_600_000_000;
/** A lost window up to this long counts as used up; a longer one does not, since it could block a whole day. */
const SHORT_US = 60_000_000;

/** Sent in place of the time of the last draw, after an outage in which calls passed without Redis. */
export const DREW_ELSEWHERE_US: number = 2 ** 52;

/**
 * Whether the asker knows of a draw, or of a policy, that the bucket has lost: by a restart of Redis without
 * its log, by a failover to a replica that lagged behind, or by an operator's mistake.
 */
export function isStateLost(
  found: BucketState | undefined,
  { drewUs, startsFull, terms }: Pick<DrawRequest, "drewUs" | "startsFull" | "terms">,
  serverUs: number,
): boolean {
  if (drewUs === 0 || startsFull === true) return false;
  // After this long without a draw the bucket has expired, and had drained long before.
  if (found === undefined) return serverUs < drewUs + KEPT_US;
  return drewUs > found.clockUs || terms.version > found.version;
}

/** Books all that the limits would let pass at once, as if a burst had just left. */
export function useUp(scope: Scope, nowUs: number): void {
  const atUs = Math.max(nowUs, scope.lastUs);
  for (const { limit, state } of scope.records) {
    if (!canBeUsedUp(limit)) continue;
    const spare = remainingOf(limit, state, atUs);
    if (spare > 0) ruleOf(limit.kind).commit(limit, state, atUs, spare, noDrawer(nowUs));
  }
}

function canBeUsedUp({ kind, periodUs }: Limit): boolean {
  const { isRate, doesDrain = false } = ruleOf(kind);
  return isRate && (doesDrain || periodUs <= SHORT_US);
}

/** A slot that was booked and given back. */
export interface Hole {
  readonly slotUs: number;
  /** The calls that it was booked for, as `Slot request.name`. */
  readonly name: string;
  /** Distinguishes slots of the same µs, and orders them as Redis orders members of equal score. */
  readonly id: string;
}

/** A Lua script cannot reply with thousands of values. */
const MOST_TAKEN = 1_000;

/** Takes the earliest holes of the same calls, and forgets those that have passed. */
export function takeHoles(
  state: Pick<BucketState, "holes" | "clockUs">,
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

/** A hole's name: the asker and the index distinguish slots of the same µs. */
export function holeName(slotUs: number, asker: string, index: number, name: string): string {
  return `${slotUs} ${asker} ${index} ${name}`;
}

/** Adds holes in the order of their times; none is added twice. */
export function addHoles(to: readonly Hole[], added: readonly Hole[]): Hole[] {
  const byId = new Map([...to, ...added].map((hole) => [hole.id, hole]));
  return [...byId.values()].sort((a, b) => a.slotUs - b.slotUs || (a.id < b.id ? -1 : 1));
}
