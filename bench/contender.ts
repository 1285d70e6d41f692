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

/** One limiter in one replica, connected and warmed up. */
export interface Driver {
  /** Keeps all callers waiting until `stop`; each that leaves is one arrival. */
  start(onArrival: () => void): void;
  stop(): void;
  close(): Promise<void>;
}

/** A limiter that takes part in the benchmark. */
export interface Contender {
  readonly title: string;
  /** Stores the work of a run beforehand, where it is kept in Redis. */
  readonly preload?: (redisUrl: string, jobs: number) => Promise<void>;
  connect(setup: ReplicaSetup): Promise<Driver>;
}
