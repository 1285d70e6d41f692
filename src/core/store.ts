import type { DrawRequest, Drawn, KnownTerms, Place, Standing, Wish } from "./draw-messages.ts";
import type { Limit } from "./limits/limit.ts";

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
  readonly standings: readonly Standing[];
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
