import type { SlotNote, SlotNoted } from "./stores/insight/slots.ts";
import type { AdaptiveWindow, Limit, LimitStatus } from "./limits/rule.ts";

/**
 * Stores the state of buckets. Each request is atomic and is never sent twice. A lost reply therefore wastes at most
 * one horizon of slots.
 */
export interface Store {
  /**
   * @throws {@link StoreUnavailableError} when no reply arrives within the store's time limit. All other requests throw
   * the same error.
   */
  draw(request: DrawRequest): Promise<Drawn>;
  /** Returns unused slots to the store, and removes the replica from the line of waiting replicas. */
  giveBack(request: ReturnRequest): Promise<void>;
  settle(request: SettleRequest): Promise<Settled | undefined>;
  /**
   * Records the state of a slot that an HTTP server granted to a caller, and returns the previous state. In the same
   * step, the first settlement books the actual cost. A slot that has ended does not change.
   */
  noteSlot(note: SlotNote, settling?: SettleRequest): Promise<SlotNoted & Settled>;
  /** Extends leases by one period from now. Returns the ids of the leases that had already expired. */
  renew(request: LeasesRequest): Promise<readonly number[]>;
  /** Returns the windows of adaptive limits that this release has closed. */
  release(request: LeasesRequest): Promise<readonly ClosedWindow[]>;
  steer(request: SteerRequest): Promise<Steered>;
  peek(request: ScopesRequest): Promise<Peeked>;
  budgets(request: BudgetsRequest): Promise<Budgets>;
  /**
   * Returns the keys of a bucket that have balances, encoded. An undefined key stands for the bucket itself.
   */
  keysWithBudgets(bucket: string): Promise<readonly (string | undefined)[]>;
  /**
   * Returns the next warnings in the log of a bucket's budgets that a reader has not handled, the oldest first. The log
   * keeps the newest 10,000 warnings of the last week.
   */
  readWarnings(request: WarningsRequest): Promise<readonly LoggedWarning[]>;
  /** Starts to call `wake` when a lease is free for this replica, or when a bucket has changed. */
  listen(replica: string, wake: Wake): void;
  /** Adds samples of the ratio of actual to estimated cost. Returns the mean ratio for each name, in millionths. */
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
  /** The time between two probes. No other call starts during this time. */
  readonly coolMs: number;
  /** The time until the next probe, at least 1. */
  readonly inMs: number;
}

interface OutageNote {
  readonly bucket: string;
  readonly key: string | undefined;
  /** The time from now until the next probe. Undefined records that the downstream is reachable again. */
  readonly coolMs: number | undefined;
}

/**
 * How long the store keeps an outage after its next probe was due, in ms. The process that should send the probe may
 * have died.
 */
export const OUTAGE_KEPT_MS = 60_000;

/**
 * The value of `drewUs` for a store that missed earlier calls of this process: a stand-in, or Redis after an outage.
 */
export const DREW_ELSEWHERE_US: number = 2 ** 52;

/**
 * The longest time between two draws of a waiting replica, in µs. A live change therefore reaches the replica within a
 * second.
 */
export const LONGEST_ASK_GAP_US = 500_000;

/** Requests slots of one bucket for the calls of one replica. */
export interface DrawRequest {
  readonly bucket: string;
  readonly asker: string;
  readonly terms: KnownTerms;
  /** At least one slot request, in the order in which the store serves them: the most urgent first, then the oldest. */
  readonly slotRequests: readonly SlotRequest[];
  readonly horizonUs: number;
  /** How long a round trip of this process takes, in µs. Slots of keys may be booked that far ahead. Defaults to 0. */
  readonly tripUs?: number;
  /** The time of this replica's last draw, on the bucket's clock. 0 if it never drew. */
  readonly drewUs: number;
  /**
   * True if a bucket without stored state starts with its whole burst. By default, the bucket starts as if its burst
   * had just been used.
   */
  readonly startsFull?: boolean | undefined;
  readonly position: WaitPosition;
  /** The id of the next lease, and the most leases that the reply may grant. */
  readonly lease: number;
  readonly leases: number;
  /** True for a try: each call starts now or is rejected. The store then writes only the slots that it grants. */
  readonly isTry: boolean;
  /** The members of a pool: each slot is booked under the limits of one of them. Undefined for other buckets. */
  readonly pool?: PoolRequest | undefined;
}

/** The members from which the store chooses one for each call. */
interface PoolRequest {
  readonly members: readonly PoolMember[];
  /** How much longer a call waits for its home than for another member, in µs. */
  readonly stickyUs: number;
}

interface PoolMember extends LimitedKey {
  /** Members of a lower tier are used first. */
  readonly tier: number;
  /** False if calls of this process do not use the member. */
  readonly isUsable: boolean;
}

/** A request for slots. It covers the calls in one process that wait with the same key, cost and priority. */
export interface SlotRequest {
  /** Identifies calls with the same key and cost. A returned slot goes only to a slot request with the same name. */
  readonly name: string;
  /**
   * The levels of the key that have their own limits, the widest first. A call starts only if all of these levels have
   * room.
   */
  readonly scopes: readonly KeyScope[];
  /**
   * The cost of one call under each limit of the policy, then under each limit of the scopes, and in a pool then under
   * each limit of the members.
   */
  readonly costs: readonly number[];
  /**
   * In a pool, the number of the member that the calls use, from 1. Positive: another member, if this one is free too
   * late. Negative: only this member. 0: any member.
   */
  readonly home?: number | undefined;
  /** The cost of one call under each shadow of the policy. */
  readonly shadowCosts?: readonly number[] | undefined;
  /**
   * The number of requested slots. With 0, the store draws nothing and returns the earliest time at which such a call
   * could start.
   */
  readonly wanted: number;
  /** The priority as a number. 0 is the most urgent. */
  readonly rank: number;
  /**
   * True if one of the calls has a deadline. The reply then says when their key has room, even if a shared limit delays
   * them.
   */
  readonly isBounded: boolean;
  /** True if the calls reserve their cost under budgets until they settle it. */
  readonly reserves?: boolean | undefined;
  /**
   * The times when the first, the second and the last call of this slot request began to wait, in µs on the bucket's
   * clock. 0 means now.
   */
  readonly sinceUs: number;
  readonly nextSinceUs: number;
  readonly lastSinceUs: number;
  /** How the key of these calls takes turns; undefined: in this bucket, calls start in the order of their arrival. */
  readonly turns?: KeyTurns | undefined;
}

/** How calls of one key take turns with those of other keys. */
export interface KeyTurns {
  /** The text of the key's path, the widest name first. */
  readonly names: string;
  /** The weight of each of its names; 1 for those without one. */
  readonly weights: readonly number[];
  /** How much time of its floor a call takes, in µs; 0: the key has no floor. */
  readonly floorUs: number;
  /** How much of the rate critical calls may take before all turns, in thousandths. */
  readonly criticalPerMille: number;
  /** True if calls of the key have waited since the latest reply. */
  readonly isPending: boolean;
}

/** When calls of keys start, in the virtual time of start-time fair queueing: µs of the limits that decide slots. */
export interface TurnTags {
  /** The tag of the call that was served last. */
  readonly virtualNow: number;
  /** The tags of the next call of each slotRequest, one for each name of its key. */
  readonly nextCalls: readonly (readonly number[])[];
  /** The number of the first lease of each slot request, because the draw serves them in the order of their turns. */
  readonly firstLeases: readonly number[];
}

/** A key with its own limits: one level of a path, or one of several keys side by side. */
export interface LimitedKey {
  /** The encoded key. */
  readonly key: string;
  readonly limits: readonly Limit[];
}

/**
 * A key with its own limits, and the replica's position among the replicas that wait for this key, from the latest
 * reply.
 */
export interface KeyScope extends LimitedKey {
  readonly position: WaitPosition;
}

/** Returns all limits of a call: the shared limits, then the limits of its scopes. Costs are in the same order. */
export function limitsOfCall(
  shared: readonly Limit[],
  scopes: readonly LimitedKey[],
): readonly Limit[] {
  return scopes.length === 0 ? shared : [...shared, ...scopes.flatMap(({ limits }) => limits)];
}

/** A replica's position among all replicas that wait in one scope. */
export interface WaitPosition {
  /** The time of the replica's turn. 0 if it has no turn. */
  readonly turnUs: number;
  /** The time when the replica began to wait for its turn, on the store's clock. 0 if it has no turn. */
  readonly sinceUs: number;
  /** The replica's position among the replicas that wait for a lease. 0 if it waits for no lease. */
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
  /** The time when the policy was declared, in µs. 0 declares it now. */
  readonly version: number;
  /** Limits that delay no call, and only count the calls that they would have delayed. */
  readonly shadows?: readonly Limit[] | undefined;
}

/**
 * Codes for the causes other than a limit that delay a call: a cooldown, a pause, or a rate that rejections have
 * reduced.
 */
export const COOLING = -1;
export const PAUSED = -2;
export const SLOWED = -3;
const CAUSES = 3;

/** Encodes a cause for `bindsAt`. Scope number 0 is the bucket; numbers from 1 are the scopes of the slot request. */
export function boundBy(cause: number, scopeNumber: number): number {
  return cause - CAUSES * scopeNumber;
}

/** Decodes a negative `bindsAt` into the cause and the scope number. */
export function causeOf(bindsAt: number): { readonly cause: number; readonly scopeNumber: number } {
  const scopeNumber = Math.floor((-bindsAt - 1) / CAUSES);
  return { cause: bindsAt + CAUSES * scopeNumber, scopeNumber };
}

/** The reply to one slot request. Times are µs on the bucket's clock. */
export interface Granted {
  /** The times of single slots. Slots that other replicas returned come first. */
  readonly slotsUs: readonly number[];
  /** In a pool, the number of the member of each single slot, from 1. */
  readonly members?: readonly number[] | undefined;
  readonly run: Run | undefined;
  /** The time when the scopes have room for another call. 0 if they have room now, Infinity if the time is unknown. */
  readonly notBeforeUs: number;
  /** One position for each scope of the slot request. */
  readonly positions: readonly WaitPosition[];
  /**
   * The cause that delays the first call without a slot. A number from 1 is a limit in the order of the costs; 0 means
   * calls ahead of this call; a negative number is a value of `boundBy`.
   */
  readonly bindsAt: number;
  /**
   * The earliest time at which the first call without a slot can start, even if other calls give up. 0 if the draw is a
   * try, or if all calls got slots. For calls without a deadline that wait behind other calls of this draw, only the
   * bucket's limits are considered.
   */
  readonly soonestUs: number;
  /** If the draw is a try, the status of each limit, in the order of the costs. */
  readonly statuses: readonly LimitStatus[];
  /** What the budget holds that the first call without a slot does not fit into. `bindsAt` is its number. */
  readonly spent?: SpentBudget | undefined;
  /** The error with which the calls of the slot request fail if no store can serve them now. */
  readonly refusal?: Error | undefined;
}

/** The balance of a budget in which a call does not fit, in millionths of its unit. */
interface SpentBudget {
  /** What is spent and reserved in the current period. */
  readonly spent: number;
  /** The amount of the period, with what was carried over and granted. */
  readonly total: number;
  /** The time at which the budget has room again, in µs: the end of the period, or for rolling days of the first ones. */
  readonly endUs: number;
}

/** A part of a budget's amount that was reached for the first time in a period. Amounts are in millionths. */
export interface CrossedBudget extends SpentBudget {
  /** The encoded key that the budget belongs to. Undefined for a budget of the bucket. */
  readonly key: string | undefined;
  readonly limit: Limit;
  /** The part: 0.8. */
  readonly part: number;
}

export interface WarningsRequest {
  readonly bucket: string;
  /** The name of the reader: of a webhook sender. */
  readonly reader: string;
  /** The number of the last warning that the reader has handled since its last request; 0 if there is none. */
  readonly handled: number;
}

/** A part of a budget's amount that was reached, as the log of its bucket contains it. Amounts are in millionths. */
export interface LoggedWarning extends SpentBudget {
  /** The position in the log. */
  readonly number: number;
  /** The encoded key that the budget belongs to. Undefined for a budget of the bucket. */
  readonly key: string | undefined;
  readonly unit: string;
  /** The period: `"month"` or `"30d"`. */
  readonly per: string;
  /** The part: 0.8. */
  readonly part: number;
  /** The amount of the budget, without what was carried over or granted. */
  readonly count: number;
}

/** A series of evenly spaced slots, encoded as five numbers. */
export interface Run {
  readonly count: number;
  readonly atUs: number;
  /** The level that must drain before the first slot, in cost × period. */
  readonly excess: number;
  /** The additional level that must drain before each later slot. */
  readonly step: number;
  /** The level that drains per µs. */
  readonly drain: number;
}

/** A value for `excess` that is so low that all calls of a run start at `atUs`. */
export const AT_ONCE: number = -(2 ** 52);

/** Returns the time of slot number `index`, rounded up so that no call is early. */
export function slotOfRun({ atUs, excess, step, drain }: Run, index: number): number {
  return atUs + Math.ceil(Math.max(0, excess + index * step) / drain);
}

/** Returns the spacing of a run, which the first limit determines. Without a limit, all slots have the same time. */
export function spacingOf(
  first: Limit | undefined,
  costs: readonly number[],
): Pick<Run, "step" | "drain"> {
  if (first === undefined) return { step: 0, drain: 1 };
  return { step: costs[0]! * first.periodUs, drain: first.count };
}

export interface DrawReply {
  readonly nowUs: number;
  /** A number that increases with each change of the bucket. Slots of an older generation are invalid. */
  readonly generation: number;
  readonly version: number;
  /** The text of the active policy, if the request contained another policy. The reply then grants nothing. */
  readonly newText: string | undefined;
  /** True if an operator's override or a rules file replaced the policy of the code. */
  readonly isOverride: boolean;
  /** The number of replicas that drew in the current or the previous second. */
  readonly alive: number;
  /** The end of the bucket's cooldown or pause. `closedBy` is `COOLING`, `PAUSED`, or 0 for neither. */
  readonly closedUntilUs: number;
  readonly closedBy: number;
  /** The number of leases that stay free in the bucket even when all waiting calls have leases. */
  readonly spareLeases: number;
  /** The parts of budgets that this draw has reached. */
  readonly crossed?: readonly CrossedBudget[] | undefined;
  readonly granted: readonly Granted[];
  /**
   * The replica's position in the line for slot requests that got too few slots. The replica draws again at `turnUs`.
   */
  readonly position: WaitPosition;
  /** In a bucket whose keys take turns. */
  readonly turnTags?: TurnTags | undefined;
}

/** A reply together with the time when its request was sent. */
export interface Drawn extends DrawReply {
  /** The time when the request was sent, on the clock of `performance.now()`. */
  readonly sentAtMs: number;
}

/** The most slots in one return request: 10 ms of slots at 100,000/s. Further slots are wasted. */
export const MOST_RETURNED = 1_000;

/** Returns slots that this replica does not need, so that other replicas can use them. */
export interface ReturnRequest {
  readonly bucket: string;
  readonly asker: string;
  readonly terms: KnownTerms;
  /** The store ignores slots of an older generation. */
  readonly generation: number;
  readonly position: WaitPosition;
  readonly slotRequest: Pick<SlotRequest, "name" | "scopes" | "costs" | "reserves">;
  /** The times of the returned slots, the latest first, at most 1,000. */
  readonly slotsUs: readonly number[];
}

export interface ScopesRequest {
  readonly bucket: string;
  readonly terms: KnownTerms;
  /** The levels of a key that have their own limits, the widest first. */
  readonly scopes: readonly LimitedKey[];
}

/** Books the difference between the actual and the estimated cost of a call. */
export interface SettleRequest extends ScopesRequest {
  /**
   * The cost difference under each limit of the policy, then under each limit of the scopes. Negative if the call cost
   * less.
   */
  readonly deltas: readonly number[];
  /**
   * The cost difference under each shadow of the policy. Undefined if no shadow counted the call, or if the shadow
   * counts stay the same.
   */
  readonly shadowDeltas?: readonly number[] | undefined;
  /** The time of the slot at which the estimate was booked. */
  readonly slotUs: number;
  /** True if no call used the slot. A draining limit takes back the cost only if the slot is the latest one. */
  readonly isUnused?: boolean | undefined;
  /** What the call had reserved under budgets. Undefined if it reserved nothing. */
  readonly reserved?:
    | {
        /** The name by which the store knows the process that drew the slot. */
        readonly asker: string;
        /** The reserved amount under each limit, in the order of `deltas`. 0 for limits that are no budgets. */
        readonly amounts: readonly number[];
      }
    | undefined;
}

/** The parts of budgets that a settlement has reached. */
export interface Settled {
  readonly crossed?: readonly CrossedBudget[] | undefined;
}

/** Reads the budgets of a bucket and of some keys, or changes some of them first. */
export interface BudgetsRequest extends ScopesRequest {
  readonly change:
    | { readonly do: "look" }
    | {
        readonly do: "grant";
        readonly grants: readonly (ChangedBudget & { readonly amount: number })[];
      }
    | {
        readonly do: "restore";
        readonly balances: readonly (ChangedBudget &
          Pick<BudgetBalance, "spent" | "carried" | "granted">)[];
      };
}

/** Selects the budget to change, and the period that the change is for. */
export interface ChangedBudget {
  /** 0 for the bucket; numbers from 1 are the scopes of the request. */
  readonly scopeNumber: number;
  /** The number of the limit in its scope, from 1. */
  readonly limitNumber: number;
  /** The start of the period, in µs. If another period is current, nothing changes. 0 allows any period. */
  readonly startUs: number;
}

/** The balance of one budget. Amounts are in millionths of the unit. */
export interface BudgetBalance extends SpentBudget {
  readonly scopeNumber: number;
  readonly limitNumber: number;
  readonly startUs: number;
  readonly reserved: number;
  readonly carried: number;
  readonly granted: number;
}

interface Budgets {
  readonly nowUs: number;
  readonly balances: readonly BudgetBalance[];
}

export interface LearnRequest {
  readonly bucket: string;
  /** The samples. An empty list only reads the means. */
  readonly seen: readonly RatioSample[];
}

/** The ratio of one call's actual to its estimated cost. */
export interface RatioSample {
  /** Identifies one stored ratio by model and unit. */
  readonly name: string;
  /** The ratio in millionths, as returned by `toRatio`. */
  readonly ratio: number;
}

export interface LeasesRequest extends ScopesRequest {
  readonly asker: string;
  readonly leases: readonly number[];
  /**
   * How long the call of each lease took, in µs, for limits that adapt to latency. Below 0 if the downstream dropped the
   * call; 0 if unknown. Only for releases.
   */
  readonly latenciesUs?: readonly number[] | undefined;
}

/** A window that a release has closed. */
export interface ClosedWindow extends AdaptiveWindow {
  readonly limit: Limit;
  /** The encoded key that the limit belongs to. Undefined for the bucket. */
  readonly key: string | undefined;
}

/** Changes a bucket, or one key, for all replicas. */
export interface SteerRequest {
  readonly bucket: string;
  readonly terms: KnownTerms;
  /** The key to change. Undefined for the bucket. */
  readonly scope: LimitedKey | undefined;
  readonly change: Change;
  /**
   * The generation that the bucket must still have for the change to be made. A bucket without state accepts any
   * generation. Undefined makes the change in any case.
   */
  readonly generation?: number | undefined;
}

/**
 * The origin of a policy. An operator's override takes precedence over the rules, and the rules take precedence over
 * the code.
 */
export type PolicySource = "code" | "override" | "rules";
/** All sources. Redis stores a source as its index in this list. */
export const SOURCES: readonly PolicySource[] = ["code", "override", "rules"];

/** The result of a change. */
export interface Steered {
  /** The bucket's generation after the change. */
  readonly generation: number;
  /** True if nothing changed because the bucket has another generation than the request expected. */
  readonly isStale: boolean;
}

export type Change =
  /**
   * Starts a cooldown. No call starts for `durationUs`; then the rate increases to its full value over `rampUs`. A
   * response does not cut the rate again if the slot of its call was before the last cut.
   */
  | {
      readonly do: "cool";
      readonly durationUs: number;
      readonly rampUs: number;
      readonly slotUs: number;
    }
  /**
   * Cuts the rate. No call starts for `durationUs`. The rate drops to `factor` per mille of its value, but not below
   * `floor`, and then increases to its full value over `recoverUs`. The pause and the cut are one change. Between two
   * separate changes, another replica could draw slots that the second change does not invalidate, and the responses to
   * those calls would cut the rate again.
   */
  | {
      readonly do: "cut";
      readonly factor: number;
      readonly floor: number;
      readonly recoverUs: number;
      readonly durationUs: number;
      readonly slotUs: number;
    }
  /** Keeps calls at least `gapUs` apart for `durationUs`. */
  | { readonly do: "space"; readonly gapUs: number; readonly durationUs: number }
  /** Pauses: no call starts for `durationUs`. 0 ends a pause. */
  | { readonly do: "pause"; readonly durationUs: number }
  /**
   * Activates the policy of the request. A policy from the rules or an operator stays active, whatever the code
   * declares. With `doesYield`, an operator's override stays active, and a bucket that already has this policy does not
   * change.
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
  /** The part of the rate that is currently allowed, in per mille. */
  readonly factor: number;
  /** The time when the full rate is allowed again. 0 if the rate was not cut. */
  readonly wholeAtUs: number;
  /** The minimum time between two calls until `gapUntilUs`. */
  readonly gapUs: number;
  readonly gapUntilUs: number;
  readonly statuses: readonly LimitStatus[];
  /** The counts of each shadow of the request's policy. */
  readonly shadows: readonly ShadowCounts[];
  /** Keys with pending calls in a bucket whose keys take turns: the first 32, the next turn first. */
  readonly pendingKeys: readonly PendingKey[];
}

/** A key with pending calls, in any process. */
interface PendingKey {
  /** The text of the key's path, or of calls without a key, which take turns as one more key. */
  readonly names: string;
  /** The weight of each of its names, separated by commas. Empty if all are 1. */
  readonly weights: string;
  /** When the first of its calls began to wait, as far as is known. */
  readonly sinceUs: number;
  /** Why its first call goes before all turns. Undefined if it waits for its turn. */
  readonly goesFirst: (typeof GOES_FIRST)[number];
}

export const GOES_FIRST = ["critical", "floor", undefined] as const;

/** The counts of a shadow, a limit that rejects and delays no call. */
export interface ShadowCounts {
  /** The number of calls that the shadow counted. */
  readonly calls: number;
  /** The number of calls that the shadow would have delayed, and the longest delay. */
  readonly waited: number;
  readonly longestUs: number;
  /**
   * The number of calls that cost more than the shadow's capacity, or that it would have delayed for more than an hour.
   */
  readonly refused: number;
}

/** Why a bucket is woken: a lease is free for this replica, or the bucket or a key has changed. */
export type WakeReason = "lease" | "change";

/**
 * Receives the messages of a bucket. After a change, the replica's unused slots for the key, or for the whole bucket,
 * are invalid.
 */
export type Wake = (bucket: string, reason: WakeReason, key: string | undefined) => void;
