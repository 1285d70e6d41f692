/** A parked job, as it joins its lane. */
export interface LaneJob {
  readonly id: string;
  /** Of its lane, if it is not 1. */
  readonly weight?: number | undefined;
  /** In how many ms its key has room again, if it comes back from a worker for want of that. */
  readonly roomInMs?: number | undefined;
  /** Whether it goes behind all others of its priority, if it is in its lane; if not, it stays as it is. */
  readonly isAnew?: boolean | undefined;
}

/** What a worker tells, and asks for. */
export interface FeedRequest {
  readonly queue: string;
  readonly worker: string;
  /** How many jobs it could start soon; below none if it holds more than that. */
  readonly want: number;
  /** How long that holds, in ms, unless it says otherwise before; 0 from one that closes. */
  readonly forMs: number;
  /** The ids of jobs that it fetched. */
  readonly arrived: readonly string[];
  /** Jobs that were let through alone and have started: their key, and whether they went at once. */
  readonly probes: readonly (readonly [key: string, wentAtOnce: boolean])[];
  /** Keys that may have room again; `"*"` for all. */
  readonly woken: readonly string[];
}

/** How a job came to a worker: not by way of its lane, in its turn, or alone, to see whether its key has room. */
export type Arrival = "unfed" | "fed" | "probe";

export interface Fed {
  /** For each that arrived. */
  readonly arrivals: readonly Arrival[];
  /** How many jobs are parked in all lanes. */
  readonly parked: number;
  /** In how many ms a lane that stands aside comes back; undefined if none does. */
  readonly nextMs: number | undefined;
}

/** Jobs that a worker has fetched, and that wait for their slots still. */
export interface FetchedReport {
  readonly worker: string;
  /** In the order in which it fetched them. */
  readonly ids: readonly string[];
  /** How long that holds, in ms, unless it says otherwise before. */
  readonly forMs: number;
}

/** Jobs that stand before another, and how many plain calls they stand for. */
interface Before {
  readonly before: number;
  readonly callsBefore: number;
}

/**
 * Where a job stands: so many before it in the lane of its key, or of all that wait; with a worker that has yet to begin
 * it, before those of its key, or those without one; in how many ms it is due; or with a worker that runs it.
 */
export type JobPosition =
  | ({ readonly in: "lane"; readonly key: string } & Before)
  | ({ readonly in: "queue" } & Before)
  | ({ readonly in: "hand"; readonly key: string | undefined } & Before)
  | { readonly in: "delay"; readonly key: string | undefined; readonly dueInMs: number }
  | { readonly in: "worker" };

/** How the lanes of a queue stand. */
export interface LanesSeen {
  readonly lanes: readonly {
    readonly key: string;
    /** Those that workers hold and have yet to begin stand first. */
    readonly jobs: number;
    /** How many plain calls they stand for. */
    readonly calls: number;
    readonly weight: number;
    /** For how many ms it stands aside, since its key has no room. */
    readonly asideMs: number;
  }[];
  /** Those beyond the most that are told of. */
  readonly others: { readonly lanes: number; readonly jobs: number };
  /** How many wait and have no lane, or have left theirs: held by workers that have yet to begin them, or to be fetched. */
  readonly unlaned: number;
  /** How many plain calls those stand for. */
  readonly unlanedCalls: number;
  /** Of the job that was asked about; undefined if it is not there. */
  readonly place: JobPosition | undefined;
  /** The jobs with the earliest deadlines. */
  readonly deadlines: readonly (Before & {
    readonly id: string;
    readonly key: string;
    readonly inMs: number;
  })[];
}

/** The lanes of queues: where jobs with a key wait for their turn. */
export interface LaneStore {
  /** Parks jobs that BullMQ holds as delayed; those in any other state stay as they are. */
  join(queue: string, jobs: readonly LaneJob[]): Promise<void>;
  /** Lets jobs out of their lanes, as many as the workers want, and in fair turns. */
  feed(request: FeedRequest): Promise<Fed>;
  /** Tells which jobs a worker has yet to begin, for those who look. */
  reportFetched(queue: string, request: FetchedReport): Promise<void>;
  /**
   * Looks at the lanes, and at where one job stands; changes nothing. What jobs cost is looked up for the first
   * `counted` of those in lanes, of those that workers hold, and of the others: as many plain calls as jobs unless it is
   * said. So many that workers hold are looked at in all.
   */
  look(queue: string, id?: string, counted?: number): Promise<LanesSeen>;
  /** Takes a job out of its lane; false if it stood in none. */
  leave(queue: string, id: string): Promise<boolean>;
  /** How many jobs are parked. */
  parked(queue: string): Promise<number>;
  /** Takes all jobs that have been removed out of their lanes; those that joined since keep their places. */
  clear(queue: string): Promise<void>;
}

/** So many done jobs are kept, for so long: those that were done last. */
export interface KeptJobs {
  readonly most: number;
  readonly forMs: number;
}

/** A connection to the Redis of one queue. */
export interface QueueConnection<Client> {
  /** What BullMQ is given; core does not know it. */
  readonly client: Client;
  /** Rejects when Redis cannot be reached within this time. */
  untilReady(timeoutMs: number): Promise<void>;
  /** What Redis answers; rejects when it does not within this time. A late answer is nobody's. */
  inTime<Answer>(timeoutMs: number, question: Promise<Answer>): Promise<Answer>;
  isReady(): boolean;
  /** The lanes of queues, on this connection. */
  readonly lanes: LaneStore;
  /** Removes those of a queue's done jobs that are no longer kept. */
  forgetDone(queue: string, kept: KeptJobs): Promise<void>;
  /** Notes which deadline a job has kept by beginning, in ms since 1970. */
  noteBegun(queue: string, id: string, startByMs: number): Promise<void>;
  /** The deadline that a job has kept by beginning; undefined if none. */
  begunBy(queue: string, id: string): Promise<number | undefined>;
  /** Gives a schedule and its due run what is declared now; false if the run is not due any more. */
  declareRun(queue: string, declaration: RunDeclaration): Promise<boolean>;
  /** Takes a member out of a sorted set; whether it was in there. */
  takeOut(key: string, member: string): Promise<boolean>;
  /** Sets a key that has no value; whether it had none. */
  setIfFree(key: string, value: string): Promise<boolean>;
  close(): void;
}

/** What is declared of a schedule while a run of it is due and waits: both are to have it, or neither. */
export interface RunDeclaration {
  /** The schedule's name. */
  readonly name: string;
  /** The run, and for when it was planned, in ms since 1970. */
  readonly id: string;
  readonly dueAtMs: number;
  /** Fields that the schedule and the run are to have, as BullMQ stores them. */
  readonly schedule: Readonly<Record<string, string | number>>;
  readonly run: Readonly<Record<string, string | number>>;
}
