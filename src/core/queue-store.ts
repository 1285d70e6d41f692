/** A job that joins its lane. */
export interface LaneJob {
  readonly id: string;
  /** The lane's weight, if it is not 1. */
  readonly weight?: number | undefined;
  /** Ms until its key has room again, if it comes back from a worker because its key had none. */
  readonly roomInMs?: number | undefined;
  /** Moves the job behind all others of its priority, if it is in its lane; elsewhere it stays as it is. */
  readonly isAnew?: boolean | undefined;
}

/** What a worker reports, and how many jobs it wants. */
export interface FeedRequest {
  readonly queue: string;
  readonly worker: string;
  /** How many jobs it could start soon; negative if it holds more than that. */
  readonly want: number;
  /** How long that holds, in ms, unless a later request says otherwise; 0 from a worker that closes. */
  readonly forMs: number;
  /** The ids of jobs that it fetched. */
  readonly arrived: readonly string[];
  /** Probes that have started: their key, and whether their slots came at once. */
  readonly probes: readonly (readonly [key: string, wentAtOnce: boolean])[];
  /** Keys that may have room again; `"*"` for all. */
  readonly woken: readonly string[];
}

/** How a job came to a worker: not out of its lane; out of it, in its turn; or alone, to see whether its key has room. */
export type Arrival = "unfed" | "fed" | "probe";

export interface Fed {
  /** For each job that arrived, in the same order. */
  readonly arrivals: readonly Arrival[];
  /** How many jobs are parked in all lanes. */
  readonly parked: number;
  /** Ms until the next lane that is aside comes back; undefined if none does. */
  readonly nextMs: number | undefined;
  /** How many jobs workers hold, of all kinds. */
  readonly active: number;
}

/** The jobs that a worker has fetched and not started. */
export interface FetchedReport {
  readonly worker: string;
  /** In the order in which it fetched them. */
  readonly ids: readonly string[];
  /** How long that holds, in ms, unless a later report says otherwise. */
  readonly forMs: number;
}

/** How many jobs go before another, and how many plain calls those count as. */
interface Before {
  readonly before: number;
  readonly callsBefore: number;
}

/**
 * Where a job is: in the lane of its key; in the queue, to be fetched; in hand of a worker that has not started it, where
 * jobs of the same key, or of none, count before it; delayed, and due in `dueInMs`; or with a worker that runs it.
 */
export type JobPosition =
  | ({ readonly in: "lane"; readonly key: string } & Before)
  | ({ readonly in: "queue" } & Before)
  | ({ readonly in: "hand"; readonly key: string | undefined } & Before)
  | { readonly in: "delay"; readonly key: string | undefined; readonly dueInMs: number }
  | { readonly in: "worker" };

/** The lanes of a queue, as they were read. */
export interface LanesSeen {
  readonly lanes: readonly {
    readonly key: string;
    /** How many wait, with those that workers have fetched and not started. */
    readonly jobs: number;
    /** How many plain calls they count as. */
    readonly calls: number;
    readonly weight: number;
    /** Ms for which the lane is still aside, since its key has no room. */
    readonly asideMs: number;
  }[];
  /** The lanes that were not read, and their jobs. */
  readonly others: { readonly lanes: number; readonly jobs: number };
  /** How many jobs wait without a lane, or have left theirs: fetched and not started, or to be fetched. */
  readonly unlaned: number;
  /** How many plain calls those count as. */
  readonly unlanedCalls: number;
  /** Where the job is that was asked about; undefined if it is not there. */
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
  /** Parks jobs that BullMQ holds as delayed; jobs in any other state stay as they are. */
  join(queue: string, jobs: readonly LaneJob[]): Promise<void>;
  /** Lets jobs out of their lanes, as many as the workers want, in fair turns. */
  feed(request: FeedRequest): Promise<Fed>;
  /** Stores which jobs a worker has fetched and not started, for `look`. */
  reportFetched(queue: string, request: FetchedReport): Promise<void>;
  /**
   * Reads the lanes, and where one job is; changes nothing. The cost is read of the first `counted` jobs in lanes, of as
   * many that workers hold, and of as many others; by default of none, so that each job counts as one plain call. Of the
   * jobs that workers hold, no more than `counted` are looked at.
   */
  look(queue: string, id?: string, counted?: number): Promise<LanesSeen>;
  /** Takes a job out of its lane; false if it was in none. */
  leave(queue: string, id: string): Promise<boolean>;
  /** How many jobs are parked. */
  parked(queue: string): Promise<number>;
  /** Takes all removed jobs out of their lanes; jobs that have joined since keep their places. */
  clear(queue: string): Promise<void>;
}

/** Which done jobs are kept: at most the last `most`, for at most `forMs`. */
export interface KeptJobs {
  readonly most: number;
  readonly forMs: number;
}

/** A job that starts. */
export interface BegunJob {
  readonly id: string;
  /** The deadline that it keeps by that, in ms since 1970. */
  readonly startByMs: number | undefined;
  /** Whether a worker has died with it: if the next one does too, it may be the cause. */
  readonly isSuspect: boolean;
}

/** A job whose lock a worker holds. */
export interface HeldJob {
  readonly id: string;
  readonly token: string;
}

/** What is known of the starts of a job with which a worker has died. */
export interface JobPast {
  /** How many workers have died while it ran, of those deaths that are known: `2`. */
  readonly deaths: number;
  /** The deadline that it has kept by starting, in ms since 1970; undefined if none. */
  readonly keptMs: number | undefined;
}

/** A connection to the Redis of one queue. */
export interface QueueConnection<Client> {
  /** The client for BullMQ; core does not know its type. */
  readonly client: Client;
  /** Resolves when Redis can be used; rejects if that takes longer than `timeoutMs`. */
  untilReady(timeoutMs: number): Promise<void>;
  /** Resolves with the answer of Redis; rejects if it takes longer than `timeoutMs`. A late answer is dropped. */
  inTime<Answer>(timeoutMs: number, question: Promise<Answer>): Promise<Answer>;
  isReady(): boolean;
  /** Calls back each time that Redis can be used again. */
  onReady(listener: () => void): void;
  /** Looks less often whether Redis is still there while `mayRest` says so. */
  restWhile(mayRest: () => boolean): void;
  /** The lanes of queues, on this connection. */
  readonly lanes: LaneStore;
  /** Removes the done jobs of a queue that are no longer kept. */
  forgetDone(queue: string, kept: KeptJobs): Promise<void>;
  /** Records that a job starts. */
  noteBegun(queue: string, job: BegunJob): Promise<void>;
  /** What is known of a job that was fetched again, after a worker has died with it. */
  recall(queue: string, id: string): Promise<JobPast>;
  /** Has an idle worker look for jobs at once; by itself it does so within 5 s. */
  wakeIdle(queue: string): Promise<void>;
  /** The jobs whose locks a worker holds: those of which the tokens begin so. */
  heldBy(queue: string, tokens: string): Promise<readonly HeldJob[]>;
  /** Gives a schedule and its due run a new declaration; false if the run is no longer due. */
  declareRun(queue: string, declaration: RunDeclaration): Promise<boolean>;
  /** Removes a member of a sorted set; whether it was in there. */
  takeOut(key: string, member: string): Promise<boolean>;
  /** Sets a key if it has no value; whether it had none. */
  setIfFree(key: string, value: string): Promise<boolean>;
  close(): void;
}

/** A new declaration of a schedule, one run of which is due and waits: both get it, or neither does. */
export interface RunDeclaration {
  /** The schedule's name. */
  readonly name: string;
  /** The run's id, and the time for which it was planned, in ms since 1970. */
  readonly id: string;
  readonly dueAtMs: number;
  /** The new fields of the schedule and of the run, as BullMQ stores them. */
  readonly schedule: Readonly<Record<string, string | number>>;
  readonly run: Readonly<Record<string, string | number>>;
}
