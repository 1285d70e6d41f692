/** The settings of a run for one replica. */
export interface ReplicaSetup {
  readonly redisUrl: string;
  /** The calls a second of all replicas together. */
  readonly cap: number;
  /** How many callers wait in this replica, or how many jobs its worker holds at once. */
  readonly callers: number;
  /**
   * Records only one of this many arrivals. More than 1 is for runs in which recording all would be much of the work.
   */
  readonly every: number;
  /** The downstream of limiters that make calls. Defaults to none. */
  readonly url?: string | undefined;
  /** The folder of the built package that runs. Defaults to this working tree. */
  readonly build?: string | undefined;
}

/** The notes on a call: the key's number, the call's cost, and its slot in ms on the Redis clock. */
export const NOTES_PER_ARRIVAL = 3;

type PreloadTarget = Pick<ReplicaSetup, "redisUrl" | "build">;

/** One limiter in one replica, connected and warmed up. */
export interface Driver {
  /** Keeps all callers waiting until `stop`. Each started call is one arrival. */
  start(onArrival: () => void): void;
  stop(): void;
  /**
   * The notes on all arrivals, in order, {@link NOTES_PER_ARRIVAL} numbers each. Left out if the arrival times are
   * enough.
   */
  notes?(): Float64Array;
  close(): Promise<void>;
}

/** A limiter in the benchmark. */
export interface Contender {
  readonly title: string;
  /** Stores the jobs of a run in advance, if the limiter keeps them in Redis. */
  readonly preload?: (target: PreloadTarget, jobs: number) => Promise<void>;
  connect(setup: ReplicaSetup): Promise<Driver>;
}
