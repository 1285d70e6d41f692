/** What one replica is told of the run it takes part in. */
export interface ReplicaSetup {
  readonly redisUrl: string;
  /** Calls a second, by all replicas together. */
  readonly cap: number;
  /** How many callers wait in this replica, or how many jobs its worker holds at once. */
  readonly callers: number;
  /** Of how many arrivals one is noted down: 1, but where noting them all would be a good part of the work. */
  readonly every: number;
}

/** A key's number, what the call cost, and its slot on the clock of Redis in ms. */
export const NOTES_PER_ARRIVAL = 3;

/** One limiter in one replica, connected and warmed up. */
export interface Driver {
  /** Keeps all callers waiting until `stop`; each that leaves is one arrival. */
  start(onArrival: () => void): void;
  stop(): void;
  /** What it wrote down of each arrival, in order: {@link NOTES_PER_ARRIVAL} numbers each; left out where the time says all. */
  notes?(): Float64Array;
  close(): Promise<void>;
}

/** A limiter that takes part in the benchmark. */
export interface Contender {
  readonly title: string;
  /** Stores the work of a run beforehand, where it is kept in Redis. */
  readonly preload?: (redisUrl: string, jobs: number) => Promise<void>;
  connect(setup: ReplicaSetup): Promise<Driver>;
}
