import type { SlotNote, SlotNoted } from "./stores/insight/slots.ts";
import type { Limit, LimitStatus } from "./limits/rule.ts";

/**
 * Stores the state of buckets. Each request is atomic and is never sent twice, so a lost reply wastes at most one horizon
 * of slots.
 */
export interface Store {
  /** @throws {@link StoreUnavailableError} when no reply comes within the store's time limit. All other requests do the same. */
  draw(request: DrawRequest): Promise<Drawn>;
  /** Returns unused slots, and gives up the replica's position. */
  giveBack(request: ReturnRequest): Promise<void>;
  settle(request: SettleRequest): Promise<void>;
  /**
   * Records the state of a slot that a server gave to a caller, and returns the state before. In the same step, the first
   * settlement books its cost. A slot that has ended stays unchanged.
   */
  noteSlot(note: SlotNote, settling?: SettleRequest): Promise<SlotNoted>;
  /** Extends leases by one period from now. Returns the leases that had already expired. */
  renew(request: LeasesRequest): Promise<readonly number[]>;
  release(request: LeasesRequest): Promise<void>;
  steer(request: SteerRequest): Promise<Steered>;
  peek(request: ScopesRequest): Promise<Peeked>;
  /** From now on, calls `wake` when a lease is free for this replica, or when a bucket has changed. */
  listen(asker: string, wake: Wake): void;
  /** Adds samples of actual to estimated costs. Returns the mean ratio of each name, in millionths. */
  learn(request: LearnRequest): Promise<ReadonlyMap<string, number>>;
  /** Returns the recorded outage of each key's downstream, if there is one. An undefined key means the whole bucket. */
  readOutages(request: OutagesRequest): Promise<readonly (DownstreamOutage | undefined)[]>;
  noteOutage(note: OutageNote): Promise<void>;
  close(): Promise<void>;
}

interface OutagesRequest {
  readonly bucket: string;
  /** Encoded keys. Undefined means the whole bucket. */
  readonly keys: readonly (string | undefined)[];
}

/** A downstream that cannot be reached. Times are in ms. */
export interface DownstreamOutage {
  /** The time between two probes. No other call starts in it. */
  readonly coolMs: number;
  /** The time until the next probe, at least 1. */
  readonly inMs: number;
}

interface OutageNote {
  readonly bucket: string;
  readonly key: string | undefined;
  /** The time from now until the next probe. Undefined if the downstream is reachable again. */
  readonly coolMs: number | undefined;
}

/** How long an outage is kept after its next probe was due: the process that should send the probe may have died. */
export const OUTAGE_KEPT_MS = 60_000;

/** Sent instead of the time of the last draw, after an outage in which calls passed without Redis. */
export const DREW_ELSEWHERE_US: number = 2 ** 52;

/** The longest time between two draws of a waiting replica. So a live change reaches it within a second. */
export const LONGEST_ASK_GAP_US = 500_000;

/** Requests slots of one bucket for the calls of one replica. */
export interface DrawRequest {
  readonly bucket: string;
  readonly asker: string;
  readonly terms: KnownTerms;
  /** At least one, in the order in which they are served: the most urgent first, then the oldest. */
  readonly slotRequests: readonly SlotRequest[];
  readonly horizonUs: number;
  /** When this replica last drew, on the bucket's clock. 0 if it never did. */
  readonly drewUs: number;
  /** True if a bucket that lost its state starts with its whole burst. By default it starts as if a burst had just left. */
  readonly startsFull?: boolean | undefined;
  readonly position: WaitPosition;
  /** The number of the next lease, and how many leases the reply may grant. */
  readonly lease: number;
  readonly leases: number;
  /** True if calls start now or not at all. The store then writes only what it grants. */
  readonly isTry: boolean;
}

/** A request for slots for calls of one key, cost and priority, that wait in one process. */
export interface SlotRequest {
  /** Identifies calls of one kind. A returned slot goes only to a slot request of the same name. */
  readonly name: string;
  /** The levels of the calls' key that have their own limits, the widest first. A call needs room in all of them. */
  readonly scopes: readonly KeyScope[];
  /** The cost of one call under each limit of the policy, then under each limit of the scopes. */
  readonly costs: readonly number[];
  /** The cost of one call under each shadow of the policy. */
  readonly shadowCosts?: readonly number[] | undefined;
  /** The number of slots. With 0, the store draws nothing and returns the earliest time at which such a call could start. */
  readonly wanted: number;
  /** 0 is the most urgent. */
  readonly rank: number;
  /** True if one of these calls has a deadline. The reply then describes their key, whatever they wait for. */
  readonly isBounded: boolean;
  /** When the first, the second and the last of these calls began to wait, in µs on the bucket's clock. 0 means now. */
  readonly sinceUs: number;
  readonly nextSinceUs: number;
  readonly lastSinceUs: number;
}

/** A key with its own limits: one level of a path, or one of several keys side by side. */
export interface LimitedKey {
  /** The encoded key. */
  readonly key: string;
  readonly limits: readonly Limit[];
}

/** A key with its own limits, and the replica's position there in the latest reply. */
export interface KeyScope extends LimitedKey {
  readonly position: WaitPosition;
}

/** Returns all limits of a call: the shared ones, then those of its scopes. Costs are in the same order. */
export function limitsOfCall(
  shared: readonly Limit[],
  scopes: readonly LimitedKey[],
): readonly Limit[] {
  return scopes.length === 0 ? shared : [...shared, ...scopes.flatMap(({ limits }) => limits)];
}

/** A replica's position among all replicas that wait in one scope. */
export interface WaitPosition {
  /** When its turn comes. 0 if it has no turn. */
  readonly turnUs: number;
  /** When it began to wait for that turn, on the store's clock. 0 if it has no turn. */
  readonly sinceUs: number;
  /** Its order among the replicas that wait for a lease. 0 if it waits for none. */
  readonly leaseOrder: number;
}

export const NO_POSITION: WaitPosition = Object.freeze({ turnUs: 0, sinceUs: 0, leaseOrder: 0 });

export function isNone({ turnUs, leaseOrder }: WaitPosition): boolean {
  return turnUs === 0 && leaseOrder === 0;
}

/** The policy that a replica knows. */
export interface KnownTerms {
  readonly limits: readonly Limit[];
  readonly shares: readonly number[];
  readonly text: string;
  /** When it was declared, in µs. 0 declares it now. */
  readonly version: number;
  /** Limits that only count. */
  readonly shadows?: readonly Limit[] | undefined;
}

/** Causes other than a limit that hold a call back: a cooldown, a pause, or a rate that responses have slowed. */
export const COOLING = -1;
export const PAUSED = -2;
export const SLOWED = -3;
const CAUSES = 3;

/** Encodes a cause for `bindsAt`. Scope number 0 is the bucket; numbers from 1 are the scopes of the slot request. */
export function boundBy(cause: number, scopeNumber: number): number {
  return cause - CAUSES * scopeNumber;
}

/** Decodes a `bindsAt` below 0. */
export function causeOf(bindsAt: number): { readonly cause: number; readonly scopeNumber: number } {
  const scopeNumber = Math.floor((-bindsAt - 1) / CAUSES);
  return { cause: bindsAt + CAUSES * scopeNumber, scopeNumber };
}

/** The reply to one slot request. Times are µs on the bucket's clock. */
export interface Granted {
  /** Single slots, returned ones first. */
  readonly slotsUs: readonly number[];
  readonly run: Run | undefined;
  /** When the scopes have room for another call. 0 if they have room now, Infinity if the time is unknown. */
  readonly notBeforeUs: number;
  /** One position for each scope of the slot request. */
  readonly positions: readonly WaitPosition[];
  /**
   * What held back the first call without a slot: the number of a limit in the order of the costs, from 1; 0 for calls
   * ahead of it; or a value of `boundBy`.
   */
  readonly bindsAt: number;
  /**
   * The earliest start of the first call without a slot, however many other callers give up. 0 in a try, or if all calls
   * got slots. Only the bucket's limits decide it for calls without a deadline that wait behind others of this draw.
   */
  readonly soonestUs: number;
  /** In a try: the status of each limit, in the order of the costs. */
  readonly statuses: readonly LimitStatus[];
  /** The error with which these calls fail, if no store can serve them now. */
  readonly refusal?: Error | undefined;
}

/** Evenly spaced slots, as five numbers for any count. */
export interface Run {
  readonly count: number;
  readonly atUs: number;
  /** The level that has to drain before the first slot, in cost × period … */
  readonly excess: number;
  /** … how much more before each slot after it … */
  readonly step: number;
  /** … and how much drains per µs. */
  readonly drain: number;
}

/** An excess so low that all calls of a run start at `atUs`. */
export const AT_ONCE: number = -(2 ** 52);

/** Returns the time of slot number `index`, rounded up so that no call is early. */
export function slotOfRun({ atUs, excess, step, drain }: Run, index: number): number {
  return atUs + Math.ceil(Math.max(0, excess + index * step) / drain);
}

/** Returns the spacing of a run: the first limit decides it. Without a limit, all slots are at the same time. */
export function spacingOf(
  first: Limit | undefined,
  costs: readonly number[],
): Pick<Run, "step" | "drain"> {
  if (first === undefined) return { step: 0, drain: 1 };
  return { step: costs[0]! * first.periodUs, drain: first.count };
}

export interface DrawReply {
  readonly nowUs: number;
  /** Grows with each change of the bucket. Slots of an older generation are void. */
  readonly generation: number;
  readonly version: number;
  /** The policy in force, if the request had another one. The reply then grants nothing. */
  readonly newText: string | undefined;
  /** True if an operator or the rules replaced the policy of the code. */
  readonly isOverride: boolean;
  /** The number of replicas that drew in this second or the last. */
  readonly alive: number;
  /** The end of the bucket's cooldown or pause, and which of the two: `COOLING` or `PAUSED`, 0 for neither. */
  readonly closedUntilUs: number;
  readonly closedBy: number;
  /** The leases that stay free in the bucket even when all waiting calls have theirs. */
  readonly spareLeases: number;
  readonly granted: readonly Granted[];
  /** The replica's position for slot requests that got too few slots. Its turn is when to ask again. */
  readonly position: WaitPosition;
}

/** A reply, and when its request was sent. */
export interface Drawn extends DrawReply {
  /** On `performance.now()`. */
  readonly sentAtMs: number;
}

/** The most slots of one return: 10 ms of slots at 100,000/s. More slots than that are wasted. */
export const MOST_RETURNED = 1_000;

/** Returns slots that this replica does not need, so that other replicas can use them. */
export interface ReturnRequest {
  readonly bucket: string;
  readonly asker: string;
  readonly terms: KnownTerms;
  /** The store ignores slots of an older generation. */
  readonly generation: number;
  readonly position: WaitPosition;
  readonly slotRequest: Pick<SlotRequest, "name" | "scopes" | "costs">;
  /** Latest first, 1,000 at most. */
  readonly slotsUs: readonly number[];
}

export interface ScopesRequest {
  readonly bucket: string;
  readonly terms: KnownTerms;
  /** The levels of a key that have their own limits, the widest first. */
  readonly scopes: readonly LimitedKey[];
}

/** Books the difference between a call's actual cost and its estimate. */
export interface SettleRequest extends ScopesRequest {
  /** One for each limit of the policy, then one for each limit of the scopes. Negative if the call cost less. */
  readonly deltas: readonly number[];
  /** One for each shadow of the policy. Undefined if no shadow counted the call, or if their counts stay. */
  readonly shadowDeltas?: readonly number[] | undefined;
  /** The slot at which the estimate was booked. */
  readonly slotUs: number;
  /** True if no call used the slot. A limit that drains takes it back only if it is the last slot. */
  readonly isUnused?: boolean | undefined;
}

export interface LearnRequest {
  readonly bucket: string;
  /** The samples. An empty list only reads the means. */
  readonly seen: readonly RatioSample[];
}

/** The ratio of one call's actual to its estimated cost. */
export interface RatioSample {
  /** Names the estimate: a model and a unit. */
  readonly name: string;
  /** In millionths, as `toRatio` gives it. */
  readonly ratio: number;
}

export interface LeasesRequest extends ScopesRequest {
  readonly asker: string;
  readonly leases: readonly number[];
}

/** Changes a bucket, or one key, for all replicas. */
export interface SteerRequest {
  readonly bucket: string;
  readonly terms: KnownTerms;
  /** The key to change. Undefined for the bucket. */
  readonly scope: LimitedKey | undefined;
  readonly change: Change;
  /**
   * The change is made only if the bucket still has this generation, or no state. Undefined makes it in any case.
   */
  readonly generation?: number | undefined;
}

/** Where a policy comes from. An operator's override beats the rules, and the rules beat the code. */
export type PolicySource = "code" | "override" | "rules";
/** Redis stores a source as its index here. */
export const SOURCES: readonly PolicySource[] = ["code", "override", "rules"];

/** The result of a change. */
export interface Steered {
  /** The bucket's generation after the change. */
  readonly generation: number;
  /** True if nothing changed because the bucket has another generation than the request. */
  readonly isStale: boolean;
}

export type Change =
  /**
   * Nothing starts for `durationUs`; then the rate grows back over `rampUs`. Responses to calls whose slots lie before
   * the last cut do not cut again.
   */
  | {
      readonly do: "cool";
      readonly durationUs: number;
      readonly rampUs: number;
      readonly slotUs: number;
    }
  /**
   * Nothing starts for `durationUs`. The rate drops to `factor` per mille of its value, but not below `floor`, and then
   * grows back over `recoverUs`. Pause and cut are one change. Between two changes, another replica could draw slots
   * that the second one does not void, and the responses to their calls would cut the rate again.
   */
  | {
      readonly do: "cut";
      readonly factor: number;
      readonly floor: number;
      readonly recoverUs: number;
      readonly durationUs: number;
      readonly slotUs: number;
    }
  /** Calls keep a distance of `gapUs` for `durationUs`. */
  | { readonly do: "space"; readonly gapUs: number; readonly durationUs: number }
  /** Nothing starts for `durationUs`; 0 ends a pause. */
  | { readonly do: "pause"; readonly durationUs: number }
  /**
   * Puts the policy of the request in force. A policy of the rules or an operator stays, whatever the code declares.
   * With `doesYield`, an operator's override stays, and a bucket that already has this policy does not change.
   */
  | { readonly do: "configure"; readonly source: PolicySource; readonly doesYield: boolean };

/** The state of a bucket, or of the requested scopes in it. Times are µs on the bucket's clock. */
export interface Peeked {
  readonly nowUs: number;
  readonly generation: number;
  readonly version: number;
  readonly text: string;
  readonly source: PolicySource;
  readonly alive: number;
  readonly coolUntilUs: number;
  readonly pausedUntilUs: number;
  /** The part of the rate that is in force, per mille. */
  readonly factor: number;
  /** When the whole rate is in force again. 0 if it was not cut. */
  readonly wholeAtUs: number;
  /** The distance that calls keep until `gapUntilUs`. */
  readonly gapUs: number;
  readonly gapUntilUs: number;
  readonly statuses: readonly LimitStatus[];
  /** One for each shadow of the request's policy. */
  readonly shadows: readonly ShadowCounts[];
}

/** The counts of a shadow: a limit that rejects and delays no call. */
export interface ShadowCounts {
  /** All calls that it counted. */
  readonly calls: number;
  /** The calls that would have waited for it, and the longest wait. */
  readonly waited: number;
  readonly longestUs: number;
  /** The calls that cost more than its capacity, or would have waited for more than an hour. */
  readonly refused: number;
}

/** Why a bucket is woken: a lease is free for this replica, or the bucket or a key has changed. */
export type WakeReason = "lease" | "change";

/** Receives the messages of a bucket. After a change, the slots that the replica holds for the key, or for all, are void. */
export type Wake = (bucket: string, reason: WakeReason, key: string | undefined) => void;
