/** A pause that holds: of a key, or of the whole queue. */
export interface PauseSeen {
  /** Undefined for the whole queue. */
  readonly key: string | undefined;
  /** Ms until it ends; Infinity if it does not end by itself. */
  readonly forMs: number;
}

/** What came of a change of a queue that carried the generation it saw. */
export interface Steered {
  /** Another change came since then, and nothing was changed. */
  readonly isStale: boolean;
  /** That of now: it grows with each pause, resume and setting by hand. 0 before the first. */
  readonly generation: number;
}

/** A setting of a queue to set by hand. */
export interface HandSetting {
  readonly name: string;
  /** JSON; undefined ends it. */
  readonly text: string | undefined;
  /** Infinity without an end. */
  readonly forMs: number;
}

/** What was set by hand of a queue, and holds. */
export interface SteeredSettings {
  readonly generation: number;
  readonly settings: readonly (HandSetting & {
    readonly text: string;
    /** When it was set, in ms since 1970. */
    readonly atMs: number;
  })[];
}

/** Where jobs of a queue are looked for: in BullMQ's lists and sorted sets, or in the lane of a key. */
export type JobShelf =
  | "wait"
  | "prioritized"
  | "active"
  | "delayed"
  | "completed"
  | "failed"
  | { readonly lane: string };

/** A page of jobs on one shelf. */
export interface PageRequest {
  readonly shelf: JobShelf;
  /** Where the last page ended; "" for the first one. */
  readonly from: string;
  /** How many jobs are looked at, and how many found. */
  readonly lookedAt: number;
  readonly most: number;
  /** Those alone that are parked in lanes, or that are not, or that are parked in lanes below the key; undefined for all. */
  readonly parked?: boolean | "below" | undefined;
  /** Their key, or a head of its path. */
  readonly key?: string | undefined;
  readonly name?: string | undefined;
}

/** When jobs are due. */
export interface JobMove {
  /** In ms since 1970, or in ms from now on. */
  readonly at: { readonly ms: number } | { readonly inMs: number };
  /** Leaves those that wait as they are: they are due. */
  readonly onlyDelayed: boolean;
}

export interface Moved {
  /** When they are due, in ms since 1970. */
  readonly atMs: number;
  /** For each job whether it was moved, was due then already, or stays as it is. */
  readonly moves: readonly ("moved" | "same" | "refused")[];
}

/**
 * Where jobs are that are removed: those that are pending wait or are delayed; `"any"` means all of which no worker has the
 * lock.
 */
export type RemovedState = "pending" | "done" | "failed" | "any";

/** The workers of a queue, of all processes, that were alive a moment ago. */
export interface LiveWorkers {
  readonly workers: number;
  /** How many jobs they can have at once. */
  readonly places: number;
}

/** Attempts that have ended, and how long their handlers took together. */
export interface Ended {
  readonly done: number;
  readonly failed: number;
  readonly busyMs: number;
}

/** Those of a span of time up to now. */
export interface EndedSince extends Ended {
  readonly overMs: number;
}

/** The job of a queue that waits longest, and since when, in ms since 1970. */
export interface OldestJob {
  readonly id: string;
  readonly sinceMs: number;
}

/** The store, as far as one steers queues with it. */
export interface SteeringStore {
  /**
   * Pauses one key, or the whole queue; for Infinity until that is ended, for 0 ms to end it. Nothing is changed if another
   * change came since a generation. `hasPutAway`: an old version of BullMQ put jobs away, which its own `resume` brings back.
   */
  pause(
    queue: string,
    pause: PauseSeen & { readonly since?: number | undefined },
  ): Promise<Steered & { readonly hasPutAway: boolean }>;
  /** Sets settings by hand, all or none. */
  setByHand(
    queue: string,
    settings: readonly HandSetting[],
    since: number | undefined,
  ): Promise<Steered>;
  byHand(queue: string): Promise<SteeredSettings>;
  /** Reads which pauses hold: the queue's own first, then those of keys by when they end. */
  pauses(queue: string): Promise<readonly PauseSeen[]>;
  /**
   * Finds the next jobs on a shelf: the ended ones newest first, others by when they are due, those of a list by their
   * ids. A job that stays where it is is not missed. `end` is "" once there are no more.
   */
  page(
    queue: string,
    request: PageRequest,
  ): Promise<{ readonly ids: string[]; readonly end: string }>;
  /** Gives jobs another time that wait or are delayed; the others stay as they are. */
  move(queue: string, ids: readonly string[], move: JobMove): Promise<Moved>;
  /** Removes jobs of this state with all that is kept of them; the ids of those that it removed. Of many calls at once, one gets each. */
  remove(queue: string, state: RemovedState, ids: readonly string[]): Promise<readonly string[]>;
  /** Gives a job other data, unless it runs or is done. */
  update(
    queue: string,
    id: string,
    json: string,
  ): Promise<"updated" | "missing" | "active" | "done">;
  /** Notes that a worker is alive for `forMs` from now on; for 0 that it is not. */
  noteWorker(
    queue: string,
    worker: {
      readonly worker: string;
      readonly places: number;
      readonly forMs: number;
      /** What came of its attempts since it said so last. */
      readonly ended?: Ended | undefined;
    },
  ): Promise<void>;
  workers(queue: string): Promise<LiveWorkers>;
  /** The attempts of all workers of about the last minute. */
  ended(queue: string): Promise<EndedSince>;
  /** The oldest of the jobs that are due and have not begun, among those of 500 lanes; undefined if none waits. */
  oldest(queue: string): Promise<OldestJob | undefined>;
  /** How many jobs are parked in the lane of a key, and in those below it. */
  waitingOf(queue: string, key: string): Promise<number>;
}
