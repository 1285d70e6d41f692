import type { Limit, LimitStatus } from "./limits/rule.ts";

/** How many slots one return may hold; what is more is wasted, some 10 ms of a bucket of 100,000/s. */
export const MOST_RETURNED = 1_000;

/** Slots that nobody waits for any more, so that another replica can have them. */
export interface ReturnRequest {
  readonly bucket: string;
  readonly asker: string;
  readonly terms: KnownTerms;
  /** Slots of another generation are worthless and are ignored. */
  readonly generation: number;
  readonly place: Place;
  readonly wish: Pick<Wish, "name" | "key" | "keyLimits" | "costs" | "place">;
  /** Latest first, 1,000 at most. */
  readonly slotsUs: readonly number[];
}

/** What is asked of a bucket, or of one key of it. */
export interface ScopeRequest {
  readonly bucket: string;
  readonly terms: KnownTerms;
  /** The key that is meant; undefined: the bucket. */
  readonly key: string | undefined;
  readonly keyLimits: readonly Limit[];
}

/** What a call came to cost beyond its estimate, or less. */
export interface SettleRequest extends ScopeRequest {
  /** For each of the policy's limits and then for each of the key's. */
  readonly deltas: readonly number[];
  /** The slot that the estimate was booked at. */
  readonly slotUs: number;
  /** No call left on the slot: what drains gives back only what nothing is booked behind. */
  readonly isUnused?: boolean | undefined;
}

/** Where the leases of some calls are. */
export interface LeasesRequest extends ScopeRequest {
  readonly asker: string;
  readonly leases: readonly number[];
}

/** A change that all replicas are to feel. */
export interface SteerRequest extends ScopeRequest {
  readonly change: Change;
}

export type Change =
  /** Nothing starts for so long; the rate then grows back over `rampUs`. Slots up to the last cut do not cut again. */
  | {
      readonly do: "cool";
      readonly forUs: number;
      readonly rampUs: number;
      readonly slotUs: number;
    }
  /**
   * The rate is cut to `factor` per mille of what it is, to `floor` at least, and grows back over
   * `recoverUs`; before that, nothing starts for `forUs`. It is one change: between two, another
   * replica could draw slots that the second does not make worthless, and their answers would cut again.
   */
  | {
      readonly do: "cut";
      readonly factor: number;
      readonly floor: number;
      readonly recoverUs: number;
      readonly forUs: number;
      readonly slotUs: number;
    }
  /** Calls keep a distance of `gapUs` for so long. */
  | { readonly do: "space"; readonly gapUs: number; readonly forUs: number }
  /** Nothing starts for so long; 0 ends it. */
  | { readonly do: "pause"; readonly forUs: number }
  /** Another policy holds, over what the code says; `isOverride` false gives way to it again. */
  | { readonly do: "configure"; readonly isOverride: boolean };

/** How a bucket stands. */
export interface Peeked {
  readonly nowUs: number;
  readonly generation: number;
  readonly version: number;
  readonly text: string;
  readonly isOverride: boolean;
  readonly alive: number;
  readonly coolUntilUs: number;
  readonly pausedUntilUs: number;
  /** Per mille of the rate that is in force. */
  readonly factor: number;
  /** When all of it is again, if it grows back by itself; 0 if it has not been cut. */
  readonly wholeAtUs: number;
  /** Until then, calls keep so much of a distance. */
  readonly gapUs: number;
  readonly gapUntilUs: number;
  readonly statuses: readonly LimitStatus[];
}

/** A lease is free for who is told, of the bucket's own limits or of those of one key; or something has changed. */
export type News = "lease" | "change";

/**
 * Tells a process that something of a bucket has changed: a lease is free for it, or slots that it
 * holds, of one key or of all, are worthless.
 */
export type Wake = (bucket: string, news: News, key: string | undefined) => void;

/**
 * Where buckets keep their state. Each call is atomic and is never sent twice:
 * an answer that gets lost wastes at most one horizon of slots.
 */
export interface Store {
  /** @throws {@link StoreUnavailableError} when there is no answer within the store's time limit; so do all that follow. */
  draw(request: DrawRequest): Promise<Drawn>;
  /** Gives slots back, and the asker's turn with them. */
  giveBack(request: ReturnRequest): Promise<void>;
  settle(request: SettleRequest): Promise<void>;
  /** Lets leases last for another lease's time from now; those that were lost already. */
  renew(request: LeasesRequest): Promise<readonly number[]>;
  release(request: LeasesRequest): Promise<void>;
  steer(request: SteerRequest): Promise<void>;
  peek(request: ScopeRequest): Promise<Peeked>;
  /** Wakes this asker from now on. */
  listen(asker: string, wake: Wake): void;
  close(): Promise<void>;
}

/** Calls of one key, cost and priority that wait in one process, in a request. */
export interface Wish {
  /** What tells these calls from others: slots go from one call to another of the same name only. */
  readonly name: string;
  /** The key, if it has limits of its own. */
  readonly key: string | undefined;
  readonly keyLimits: readonly Limit[];
  /** What one call costs, for each of the policy's limits and then for each of the key's. */
  readonly costs: readonly number[];
  readonly wanted: number;
  /** 0 is the most urgent. */
  readonly rank: number;
  /** The place among those who wait for this key, as the last reply gave it. */
  readonly place: Place;
}

/** An asker's place among those who wait in one scope. */
export interface Place {
  /** The turn that it was given; 0: none. */
  readonly turnUs: number;
  /** What the turn is kept by; "" if there is none. */
  readonly turnName: string;
  /** Since when it waits for a lease; 0: it does not. */
  readonly sinceUs: number;
}

export const NO_PLACE: Place = Object.freeze({ turnUs: 0, turnName: "", sinceUs: 0 });

/** The policy as an asker knows it. */
export interface KnownTerms {
  readonly limits: readonly Limit[];
  readonly shares: readonly number[];
  readonly text: string;
  /** The µs at which it was declared; 0 declares it anew. */
  readonly version: number;
}

/** One replica's wishes for slots of one bucket. */
export interface DrawRequest {
  readonly bucket: string;
  readonly asker: string;
  readonly terms: KnownTerms;
  /** In the order in which they are to be served; one at least. */
  readonly wishes: readonly Wish[];
  readonly horizonUs: number;
  /** When the asker drew last, by the bucket's clock; 0: never. */
  readonly drewUs: number;
  /** A bucket that has lost what it let pass starts full, instead of empty-handed. */
  readonly startsFull?: boolean | undefined;
  readonly place: Place;
  /** The number of the next lease, and how many may be given out from there. */
  readonly lease: number;
  readonly leases: number;
  /** At once or not at all, and leaving nothing behind but what is granted. */
  readonly isTry: boolean;
}

/** What holds a call back where no limit does, as `bindsAt` numbers it: a cooldown, a pause, or a rate that answers have slowed. */
export const COOLING = -1;
export const PAUSED = -2;
export const SLOWED = -3;

/** What one wish came to; all times are µs on the bucket's own clock. */
export interface Granted {
  /** Slots one by one: those that others had given back first. */
  readonly slotsUs: readonly number[];
  readonly run: Run | undefined;
  /** When the key lets another call pass; 0: it is not what holds these calls back; Infinity: nobody can tell. */
  readonly notBeforeUs: number;
  readonly place: Place;
  /** What held the first call back that got none: the number of a limit from 1 on, the policy's before the key's; 0: the line; or one of those above, below 0. */
  readonly bindsAt: number;
  /** Of a try: how each limit stands, the policy's before the key's. */
  readonly statuses: readonly LimitStatus[];
  /** Why these calls can get nothing for now: they fail with it. */
  readonly refusal?: Error | undefined;
}

/** Evenly spaced slots, in few numbers however many they are. */
export interface Run {
  readonly count: number;
  readonly atUs: number;
  /** What has to drain before the first one, in cost × period … */
  readonly excess: number;
  /** … how much more before each of the next … */
  readonly step: number;
  /** … and how much drains per µs. */
  readonly drain: number;
}

/** When slot number `index` of a run starts; rounded up so that no call is early. */
export function slotOfRun({ atUs, excess, step, drain }: Run, index: number): number {
  return atUs + Math.ceil(Math.max(0, excess + index * step) / drain);
}

export interface DrawReply {
  readonly nowUs: number;
  /** Slots carry it; those of another one are worthless. */
  readonly generation: number;
  readonly version: number;
  /** The policy in force, if it is another than the asker knows. Nothing was granted then. */
  readonly newText: string | undefined;
  /** Whether it was configured by hand, over what the code says. */
  readonly isOverride: boolean;
  /** How many replicas drew of late. */
  readonly alive: number;
  readonly granted: readonly Granted[];
  /** The place of what could not be granted: its turn is when to ask again. */
  readonly place: Place;
}

/** A reply, and how old it may be. */
export interface Drawn extends DrawReply {
  /** When the request left, on `performance.now()`. */
  readonly sentAtMs: number;
}
