import type { SlotNote, SlotNoted } from "./stores/insight/slots.ts";
import type { Limit, LimitStatus } from "./limits/rule.ts";

/**
 * Where buckets keep their state. Each request is atomic and is never sent twice:
 * a lost answer wastes at most one horizon of slots.
 */
export interface Store {
  /** @throws {@link StoreUnavailableError} when no answer comes within the store's time limit; so do all other requests. */
  draw(request: DrawRequest): Promise<Drawn>;
  /** Gives slots back, and the asker's position with them. */
  giveBack(request: ReturnRequest): Promise<void>;
  settle(request: SettleRequest): Promise<void>;
  /**
   * Notes what becomes of a slot that a server has given to a caller; nothing of one that is over. Books the cost with which
   * it is settled for the first time, in the same step. Answers what it was before.
   */
  noteSlot(note: SlotNote, settling?: SettleRequest): Promise<SlotNoted>;
  /** Makes leases last for another period from now. Returns those that were already lost. */
  renew(request: LeasesRequest): Promise<readonly number[]>;
  release(request: LeasesRequest): Promise<void>;
  steer(request: SteerRequest): Promise<Steered>;
  peek(request: ScopesRequest): Promise<Peeked>;
  /** Calls `wake` with news for this asker from now on. */
  listen(asker: string, wake: Wake): void;
  /** Takes samples in of how calls differed from their estimates; answers the mean of each name, in millionths. */
  learn(request: LearnRequest): Promise<ReadonlyMap<string, number>>;
  /** Whether the downstream is away, of the whole bucket (undefined) or of single keys, as some process has noted. */
  readOutages(request: OutagesRequest): Promise<readonly (DownstreamOutage | undefined)[]>;
  noteOutage(note: OutageNote): Promise<void>;
  close(): Promise<void>;
}

/** The texts of keys; undefined stands for the whole bucket. */
interface OutagesRequest {
  readonly bucket: string;
  readonly keys: readonly (string | undefined)[];
}

/** A downstream that is away. Times are in ms. */
export interface DownstreamOutage {
  /** How long nothing starts between two tries. */
  readonly coolMs: number;
  /** When the next one tries; 1 at least. */
  readonly inMs: number;
}

/** `coolMs` is from now on; undefined: the downstream is back. */
interface OutageNote {
  readonly bucket: string;
  readonly key: string | undefined;
  readonly coolMs: number | undefined;
}

/** How long a note of a downstream is kept when the next try is overdue: who was to try it may have died. */
export const OUTAGE_KEPT_MS = 60_000;

/** Sent instead of the time of the last draw, after an outage in which calls passed without Redis. */
export const DREW_ELSEWHERE_US: number = 2 ** 52;

/** The longest time between two draws of a waiting replica. So a live change reaches it within a second. */
export const LONGEST_ASK_GAP_US = 500_000;

/** One replica's requests for slots of one bucket. */
export interface DrawRequest {
  readonly bucket: string;
  readonly asker: string;
  readonly terms: KnownTerms;
  /** In the order in which they are to be served, the most urgent and the oldest first; one at least. */
  readonly slotRequests: readonly SlotRequest[];
  readonly horizonUs: number;
  /** When the asker last drew, by the bucket's clock; 0: never. */
  readonly drewUs: number;
  /** A bucket with lost state starts full. By default it starts as if a burst had just left. */
  readonly startsFull?: boolean | undefined;
  readonly position: WaitPosition;
  /** The number of the next lease, and how many may be given from there on. */
  readonly lease: number;
  readonly leases: number;
  /** Whether calls start now or not at all; nothing but what is granted is written. */
  readonly isTry: boolean;
}

/** A request for slots for calls of one key, cost and priority, that wait in one process. */
export interface SlotRequest {
  /** Identifies calls of one kind: a hole goes only to a slot request of the same name. */
  readonly name: string;
  /** What of the calls' key has limits of its own, the widest first; all of them let a call pass, or none does. */
  readonly scopes: readonly KeyScope[];
  /** What one call costs, for each of the policy's limits and then for each limit of the scopes. */
  readonly costs: readonly number[];
  /** What one call costs under each of the policy's shadows. */
  readonly shadowCosts?: readonly number[] | undefined;
  /** 0: nothing is to be drawn; the reply tells when such a call could start. */
  readonly wanted: number;
  /** 0 is the most urgent. */
  readonly rank: number;
  /** Whether one of these calls waits for a bounded time: the reply then tells of their key whatever they wait for. */
  readonly isBounded: boolean;
  /** Since when the first, the second and the last of these calls wait, in µs on the bucket's clock; 0: since now. */
  readonly sinceUs: number;
  readonly nextSinceUs: number;
  readonly lastSinceUs: number;
}

/** Limits that calls of one key have for themselves: those of a level of its path, or of one of several keys. */
export interface LimitedKey {
  /** The text of the key, as `encodeKey` writes it. */
  readonly key: string;
  readonly limits: readonly Limit[];
}

/** A limited key, and the asker's position among those that wait for it, as the last reply gave it. */
export interface KeyScope extends LimitedKey {
  readonly position: WaitPosition;
}

/** All limits of a call: those that all keys share, and then those of its scopes. Its costs are in this order. */
export function limitsOfCall(
  shared: readonly Limit[],
  scopes: readonly LimitedKey[],
): readonly Limit[] {
  return scopes.length === 0 ? shared : [...shared, ...scopes.flatMap(({ limits }) => limits)];
}

/** An asker's position among those that wait in one scope. */
export interface WaitPosition {
  /** When its turn comes; 0: none. */
  readonly turnUs: number;
  /** Since when it waits for that turn, as the store counts it; 0: it has none. */
  readonly sinceUs: number;
  /** Its order among those that wait for a lease; 0: it does not wait for one. */
  readonly leaseOrder: number;
}

export const NO_POSITION: WaitPosition = Object.freeze({ turnUs: 0, sinceUs: 0, leaseOrder: 0 });

/** Whether an asker waits for nothing. */
export function isNone({ turnUs, leaseOrder }: WaitPosition): boolean {
  return turnUs === 0 && leaseOrder === 0;
}

/** The policy as an asker knows it. */
export interface KnownTerms {
  readonly limits: readonly Limit[];
  readonly shares: readonly number[];
  readonly text: string;
  /** The µs at which it was declared; 0 declares it now. */
  readonly version: number;
  /** Limits that only count; undefined if there are none. */
  readonly shadows?: readonly Limit[] | undefined;
}

/** What holds a call back where no limit does: a cooldown, a pause, or a rate that answers have slowed. */
export const COOLING = -1;
export const PAUSED = -2;
export const SLOWED = -3;
const CAUSES = 3;

/** The value of `bindsAt` for such a cause: of the bucket, whose number is 0, or of one of the slot request's scopes, from 1 on. */
export function boundBy(cause: number, scopeNumber: number): number {
  return cause - CAUSES * scopeNumber;
}

/** Which cause, and of what, a value of `bindsAt` below 0 says. */
export function causeOf(bindsAt: number): { readonly cause: number; readonly scopeNumber: number } {
  const scopeNumber = Math.floor((-bindsAt - 1) / CAUSES);
  return { cause: bindsAt + CAUSES * scopeNumber, scopeNumber };
}

/** The answer to one slot request. Times are µs on the bucket's clock. */
export interface Granted {
  /** Slots one by one, holes first. */
  readonly slotsUs: readonly number[];
  readonly run: Run | undefined;
  /** When the scopes let another call pass; 0 if they hold nothing back; Infinity if the time is unknown. */
  readonly notBeforeUs: number;
  /** One for each scope of the slot request. */
  readonly positions: readonly WaitPosition[];
  /** What held back the first call without a slot: a limit, numbered from 1 as the costs are; 0 for the line; or as `boundBy` says. */
  readonly bindsAt: number;
  /**
   * When the first call without a slot can start at the earliest, however many others leave; 0 of a try, or if all have
   * slots. Of unbounded calls of a key that wait behind others of this draw, it is what the bucket's limits say alone.
   */
  readonly soonestUs: number;
  /** Of a try: each limit, in the order of the costs. */
  readonly statuses: readonly LimitStatus[];
  /** The error that these calls fail with, if they can get nothing for now. */
  readonly refusal?: Error | undefined;
}

/** Evenly spaced slots, in five numbers for any count. */
export interface Run {
  readonly count: number;
  readonly atUs: number;
  /** What has to drain before the first slot, in cost × period … */
  readonly excess: number;
  /** … how much more before each slot after it … */
  readonly step: number;
  /** … and how much drains per µs. */
  readonly drain: number;
}

/** An excess so low that all calls of a run start at its first moment. */
export const AT_ONCE: number = -(2 ** 52);

/** When slot number `index` of a run starts; rounded up so that no call is early. */
export function slotOfRun({ atUs, excess, step, drain }: Run, index: number): number {
  return atUs + Math.ceil(Math.max(0, excess + index * step) / drain);
}

/** How the slots of a run are spaced: by the first limit, and not at all where there is none. */
export function spacingOf(
  first: Limit | undefined,
  costs: readonly number[],
): Pick<Run, "step" | "drain"> {
  if (first === undefined) return { step: 0, drain: 1 };
  return { step: costs[0]! * first.periodUs, drain: first.count };
}

export interface DrawReply {
  readonly nowUs: number;
  /** Slots carry it; slots of another generation are worthless. */
  readonly generation: number;
  readonly version: number;
  /** The policy in force, if it is not the asker's. Nothing was granted then. */
  readonly newText: string | undefined;
  /** Whether the policy was put over that of the code, by hand or by rules. */
  readonly isOverride: boolean;
  /** How many replicas drew in this second or the last. */
  readonly alive: number;
  /** Until when a cooldown or a pause of the bucket lets nothing start, and which does: `COOLING` or `PAUSED`; 0: neither. */
  readonly closedUntilUs: number;
  readonly closedBy: number;
  /** How many more calls could start under the bucket's limits on calls at once, beside all that wait for one. */
  readonly spareLeases: number;
  readonly granted: readonly Granted[];
  /** The position for slot requests that got too little; its turn is when to ask again. */
  readonly position: WaitPosition;
}

/** A reply, and when its request left. */
export interface Drawn extends DrawReply {
  /** On `performance.now()`. */
  readonly sentAtMs: number;
}

/** The most slots of one return. More are wasted: at 100,000/s, these are 10 ms of slots. */
export const MOST_RETURNED = 1_000;

/** Slots that no caller of this replica waits for, so that other replicas can have them. */
export interface ReturnRequest {
  readonly bucket: string;
  readonly asker: string;
  readonly terms: KnownTerms;
  /** Slots of another generation are worthless and are ignored. */
  readonly generation: number;
  readonly position: WaitPosition;
  readonly slotRequest: Pick<SlotRequest, "name" | "scopes" | "costs">;
  /** Latest first, 1,000 at most. */
  readonly slotsUs: readonly number[];
}

/** A request about a bucket, and what of a key has limits of its own there, the widest first. */
export interface ScopesRequest {
  readonly bucket: string;
  readonly terms: KnownTerms;
  readonly scopes: readonly LimitedKey[];
}

/** The difference between a call's true cost and its estimate. */
export interface SettleRequest extends ScopesRequest {
  /** One for each limit of the policy, and then one for each limit of the scopes; below 0 if the call cost less. */
  readonly deltas: readonly number[];
  /** One for each shadow of the policy; undefined: none of them counted the call, or they keep what they have counted. */
  readonly shadowDeltas?: readonly number[] | undefined;
  /** The slot that the estimate was booked at. */
  readonly slotUs: number;
  /** No call left on the slot: a limit that drains takes it back only if it is the last slot. */
  readonly isUnused?: boolean | undefined;
}

export interface LearnRequest {
  readonly bucket: string;
  /** None only asks for the means. */
  readonly seen: readonly RatioSample[];
}

/** What one call took, of what it was estimated to take. */
export interface RatioSample {
  /** What is estimated: a model, and a unit. */
  readonly name: string;
  /** In millionths, as `toRatio` gives it. */
  readonly ratio: number;
}

/** Leases of some calls, by their numbers. */
export interface LeasesRequest extends ScopesRequest {
  readonly asker: string;
  readonly leases: readonly number[];
}

/** A change for all replicas. */
export interface SteerRequest {
  readonly bucket: string;
  readonly terms: KnownTerms;
  /** What is changed; undefined: the bucket. */
  readonly scope: LimitedKey | undefined;
  readonly change: Change;
  /** Makes the change only if the bucket is still of this generation; one without state is. Undefined: in any case. */
  readonly generation?: number | undefined;
}

/** Where a policy comes from: what operators set by hand goes before rules, and rules before the code. Their numbers in Redis: */
export type PolicySource = "code" | "override" | "rules";
export const SOURCES: readonly PolicySource[] = ["code", "override", "rules"];

/** What came of a change. */
export interface Steered {
  /** The bucket's generation now. */
  readonly generation: number;
  /** Whether nothing was changed, since the bucket is of another generation than the request says. */
  readonly isStale: boolean;
}

export type Change =
  /** Nothing starts for `durationUs`; the rate then grows back over `rampUs`. Answers to calls on slots before the last cut do not cut again. */
  | {
      readonly do: "cool";
      readonly durationUs: number;
      readonly rampUs: number;
      readonly slotUs: number;
    }
  /**
   * Nothing starts for `durationUs`. The rate is cut to `factor` per mille of what it is, but not below `floor`, and
   * then grows back over `recoverUs`. This is one change: between two, another replica could draw slots that
   * the second does not make worthless, and answers to their calls would cut again.
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
   * The policy of the request is in force. From the rules or by hand, it stays so whatever the code declares. With
   * `doesYield`, what was set by hand stays, and nothing changes where this policy holds already.
   */
  | { readonly do: "configure"; readonly source: PolicySource; readonly doesYield: boolean };

/** A bucket as it is now, or what holds for a call of the scopes that were asked about. Times are µs on the bucket's clock. */
export interface Peeked {
  readonly nowUs: number;
  readonly generation: number;
  readonly version: number;
  readonly text: string;
  readonly source: PolicySource;
  readonly alive: number;
  readonly coolUntilUs: number;
  readonly pausedUntilUs: number;
  /** How much of the rate is in force, per mille. */
  readonly factor: number;
  /** When the whole rate is in force again; 0 if it has not been cut. */
  readonly wholeAtUs: number;
  /** The distance that calls keep until `gapUntilUs`. */
  readonly gapUs: number;
  readonly gapUntilUs: number;
  readonly statuses: readonly LimitStatus[];
  /** One for each shadow of the request's policy. */
  readonly shadows: readonly ShadowCounts[];
}

/** What a limit has counted that holds nothing back. */
export interface ShadowCounts {
  /** All calls that it would have counted. */
  readonly calls: number;
  /** Those that would have waited for it, and the longest wait. */
  readonly waited: number;
  readonly longestUs: number;
  /** Those that could never have passed it, or would have waited for more than an hour. */
  readonly refused: number;
}

/** A lease is free for the replica, under a shared limit or one of a key; or a bucket or key has changed. */
export type WakeReason = "lease" | "change";

/**
 * Called with news of a bucket: a lease is free for this replica, or the slots that it holds, of one key
 * or of all, are worthless.
 */
export type Wake = (bucket: string, reason: WakeReason, key: string | undefined) => void;
