import type { LeakyBucket } from "./limits/leaky-bucket.ts";

/** One replica's wish for slots of one bucket. */
export interface DrawRequest {
  readonly bucket: string;
  /** Who asks: a replica, and per cost its own asker. */
  readonly asker: string;
  /** How many calls wait, all of the same cost. */
  readonly wanted: number;
  readonly cost: number;
  readonly horizonUs: number;
  /** The newest policy that the asker knows of. */
  readonly policy: LeakyBucket;
  /** The generation of that policy; 0 declares it anew. */
  readonly generation: number;
  /** When the asker drew last, by the bucket's clock; 0: never. */
  readonly drewUs: number;
  /** The turn that it was given then; 0: none. */
  readonly turnUs: number;
}

/** What the bucket answers; all times are µs on the bucket's own clock. */
export interface DrawReply {
  readonly nowUs: number;
  /** The policy in force, and its generation: the slots below carry it. */
  readonly policy: LeakyBucket;
  readonly generation: number;
  /** Slots that others had booked and given back; they lie before all of the run. */
  readonly recycledUs: readonly number[];
  /** A run of new slots: number i starts `drainUs(policy, excess + i × cost × period)` after now. */
  readonly granted: number;
  readonly excess: number;
  /** When the asker's turn for the rest comes; 0 if every wish was granted. */
  readonly turnUs: number;
}

/** How many slots one return may hold; what is more is wasted, some 10 ms of a bucket of 100,000/s. */
export const MOST_RETURNED = 1_000;

/** A reply, and how old it may be. */
export interface Drawn extends DrawReply {
  /** When the request left, on `performance.now()`. */
  readonly sentAtMs: number;
}

/** Slots that nobody waits for any more, so that another replica can have them. */
export interface ReturnRequest {
  readonly bucket: string;
  readonly asker: string;
  readonly cost: number;
  /** Slots of another generation are worthless and are ignored. */
  readonly generation: number;
  /** Latest first, 1,000 at most. */
  readonly slotsUs: readonly number[];
}

/**
 * Where buckets keep their state. Each call is atomic and is never sent twice:
 * an answer that gets lost wastes at most one horizon of slots.
 */
export interface Store {
  /** @throws {@link StoreUnavailableError} when there is no answer within the store's time limit. */
  draw(request: DrawRequest): Promise<Drawn>;
  /** Gives slots back, and the asker's turn with them. */
  giveBack(request: ReturnRequest): Promise<void>;
  close(): Promise<void>;
}
