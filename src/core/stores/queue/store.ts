import type { RunStore } from "./runs.ts";
import type { PauseSeen, SteeringStore } from "./steering.ts";

/** A job that joins its lane. */
export interface LaneJob {
  readonly id: string;
  /** The weights of its lane and of the heads above it, from now on, the widest first; without them, they stay as they are. */
  readonly weights?: readonly number[] | undefined;
  /** Ms until there is room again, if it comes back from a worker because there was none. */
  readonly roomInMs?: number | undefined;
  /** What has no room: its key, unless a head of that is given. */
  readonly aside?: string | undefined;
  /** Moves the job behind all others of its priority, if it is in its lane; elsewhere it stays as it is. */
  readonly isAnew?: boolean | undefined;
}

/** What a worker reports, and how many jobs it takes. */
export interface TakeRequest {
  readonly queue: string;
  /** How many jobs it could start soon. */
  readonly most: number;
  /** How many jobs it takes beside those whose deadline has passed. */
  readonly mostExpired: number;
  /** How long the jobs' locks last, in ms. */
  readonly lockMs: number;
  /** What the tokens of their locks begin with; the number of the job follows, from 1 on. */
  readonly token: string;
  /** Probes that have started: their key, and whether their slots came at once. */
  readonly probes: readonly (readonly [key: string, wentAtOnce: boolean])[];
  /** Keys that may have room again; `"*"` for all. */
  readonly woken: readonly string[];
  /** Keys of ordered lanes whose jobs have ended, or are to be tried again. */
  readonly ended: readonly string[];
}

/** How a job came to a worker: in its turn; alone, to see whether its key has room; or since its deadline has passed. */
export type Arrival = "turn" | "probe" | "expired";

/** A job that a worker has taken: it is active, and locked by this worker. */
export interface TakenJob {
  readonly id: string;
  readonly arrival: Arrival;
  /** The key of an ordered lane, which gives no other job until this one has ended. */
  readonly orderedKey: string | undefined;
  readonly token: string;
  /** The fields of its hash as BullMQ stores them: names and values in turns. */
  readonly fields: readonly string[];
}

export interface Taken {
  readonly jobs: readonly TakenJob[];
  /** How many jobs are parked in all lanes. */
  readonly parked: number;
  /** How many jobs workers hold, of all kinds. */
  readonly active: number;
  /** Ms until there may be another job: 0 if there may be one now; undefined if none is known. */
  readonly nextMs: number | undefined;
  /** Whether more jobs have come due, or have expired, than one request looks at. */
  readonly isMoreDue: boolean;
  readonly orders: OrdersSeen;
}

/** Whether a worker may begin the jobs that it holds, as far as each answer says. */
export interface OrdersSeen {
  readonly isPaused: boolean;
  /** Changes whenever there is more to be told, which `orders` does. */
  readonly version: string;
}

/** What holds for the jobs that workers have. */
export interface Orders extends OrdersSeen {
  /** The keys that are paused, whose jobs may not begin. */
  readonly pausedKeys: readonly PauseSeen[];
  /** The locks of running jobs that were cancelled in the last hour. */
  readonly cancelled: readonly HeldJob[];
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
 * jobs of the same key, or of none, count before it; delayed, and due in `dueInMs`, where those count before it that
 * would go first if it were due now; or with a worker that runs it.
 */
export type JobPosition =
  | ({ readonly in: "lane"; readonly key: string } & Before)
  | ({ readonly in: "queue" } & Before)
  | ({ readonly in: "hand"; readonly key: string | undefined } & Before)
  | ({ readonly in: "delay"; readonly key: string | undefined; readonly dueInMs: number } & Before)
  | { readonly in: "worker" };

/** Delayed jobs that come due at about the same time. */
export interface DueJobs {
  readonly inMs: number;
  readonly ofKeys: readonly {
    readonly key: string | undefined;
    readonly jobs: number;
    /** How many plain calls they count as. */
    readonly calls: number;
  }[];
}

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
  /** The heads of the paths of these lanes. */
  readonly heads: readonly {
    readonly key: string;
    readonly weight: number;
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
  /**
   * If the job that was asked about is delayed: the delayed jobs that come due before it, the earliest first; of its own
   * key only those that are as urgent. And how many more there are.
   */
  readonly due: readonly DueJobs[];
  readonly moreDue: number;
  /** The jobs with the earliest deadlines. */
  readonly deadlines: readonly (Before & {
    readonly id: string;
    readonly key: string;
    readonly inMs: number;
  })[];
}

/** What became of a job that a worker gave back: one that was cancelled meanwhile is to be removed. */
export type WayBack = "back" | "cancelled" | "lost";

/**
 * Where a job is that was cancelled: it has ended or is gone; it waits, and is to be removed; a worker has it; or it is a
 * run that waits for the time of its schedule, and goes on doing so.
 */
export type Cancelling = "over" | "waits" | "held" | "scheduled";

/** How many jobs of a queue are in each state. */
export interface QueueCounts {
  readonly waiting: number;
  readonly active: number;
  readonly delayed: number;
  readonly done: number;
  readonly failed: number;
}

/** The lanes of queues: where jobs with a key wait for their turn. */
export interface LaneStore extends SteeringStore {
  /** Parks jobs that BullMQ holds as delayed; jobs in any other state stay as they are. */
  join(queue: string, jobs: readonly LaneJob[]): Promise<void>;
  /** Gives the next jobs to a worker, in fair turns. */
  take(request: TakeRequest): Promise<Taken>;
  /** Reads what holds for the jobs that workers have; of cancelled ones, those whose tokens begin so. */
  orders(queue: string, tokens: string): Promise<Orders>;
  /** Puts a job back into its old place that a worker holds and has not begun. */
  putBack(queue: string, job: HeldJob & Pick<LaneJob, "weights">): Promise<WayBack>;
  /** Sees to it that no worker begins a job, and that one that runs it learns of that. */
  cancel(queue: string, id: string): Promise<Cancelling>;
  /** Stores which jobs a worker has fetched and not started, for `look`. */
  reportFetched(queue: string, request: FetchedReport): Promise<void>;
  /**
   * Reads the lanes, and where one job is; changes nothing. The cost is read of the first `counted` jobs in lanes, of as
   * many that workers hold, and of as many others; by default of none, so that each job counts as one plain call. Of the
   * jobs that workers hold, no more than `counted` are looked at; of the delayed ones the first 1,000, or none.
   */
  look(queue: string, id?: string, counted?: number): Promise<LanesSeen>;
  /** Has workers look at once at the ordered lanes of keys, since their heads were replayed, purged or removed. */
  lookAtHeads(queue: string, keys: readonly string[]): Promise<void>;
  /** How many jobs are in each state, all at one moment; those parked in lanes wait. */
  counts(queue: string): Promise<QueueCounts>;
  /** Takes all removed jobs out of their lanes; jobs that have joined since keep their places. */
  clear(queue: string): Promise<void>;
}

/** What becomes of a job whose `dedupeId` another has: the first is kept, the last one's data, or it runs again. */
export type DedupeMode = "first" | "last" | "again";

/** A job to be stored, if none is there that has its id or its dedupeId. */
export interface AddedJob {
  /** An id of its own; without one it gets the next number. */
  readonly id: string | undefined;
  readonly name: string;
  /** Its data, as JSON. */
  readonly json: string;
  /** Its options as BullMQ stores them, as JSON. */
  readonly opts: string;
  readonly timestamp: number;
  readonly delay: number;
  readonly priority: number;
  /** Whether it joins the lane of its key at once, and with which weights. */
  readonly isParked: boolean;
  readonly weights: LaneJob["weights"];
  readonly dedupe:
    | { readonly id: string; readonly mode: DedupeMode; readonly ttl: number | undefined }
    | undefined;
}

/** How many jobs may wait in a queue, of all keys together and of each; undefined for any number. */
interface MostWaiting {
  readonly all?: number | undefined;
  readonly perKey?: number | undefined;
}

/** Jobs to be stored, all or none. */
export interface AddRequest {
  readonly queue: string;
  readonly jobs: readonly AddedJob[];
  readonly most: MostWaiting | undefined;
}

/** Why no job was stored: too many would wait, of one key or, without one, of all. */
export interface NoPlace {
  readonly waiting: number;
  readonly limit: number;
  readonly key: string | undefined;
}

/**
 * What is stored of a job that was to be added: this one, or the fields of an earlier one's hash, none if it is gone; they are
 * undefined where those of others were too many for one reply.
 */
export interface JobMet {
  readonly id: string;
  readonly isNew: boolean;
  readonly fields: readonly string[] | undefined;
}

/** Which done jobs are kept: at most the last `count`, for at most `forMs`. */
export interface KeptJobs {
  readonly count: number;
  readonly forMs: number;
}

/** Which dead letters are kept: at most the last `count`, for at most `forMs`; undefined for no bound. */
export interface KeptFailed {
  readonly count?: number | undefined;
  readonly forMs?: number | undefined;
}

/** How a job ended, as it is stored. `facts` are those of the error that failed it, as JSON; empty without one. */
export type JobEnd =
  | { readonly state: "done"; readonly json: string }
  | { readonly state: "failed"; readonly reason: string; readonly facts: string }
  | { readonly state: "cancelled" }
  | { readonly state: "missing" };

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

/**
 * The clock of the server that holds a queue. It never takes a command for each job: what it does not learn from
 * other answers, it asks every ten seconds at most.
 */
export interface RedisClock {
  /** Undefined if the times below are right; else what to wait for until they are. Rejects as the connection does. */
  ready(): Promise<void> | undefined;
  /** Now, in whole ms since 1970; not after the server's own time. */
  earliestMs(): number;
  /** Now, in whole ms since 1970; not before the server's own time. */
  latestMs(): number;
}

/** What became of a job for which a worker was woken: none has taken it, and another was woken; or none waits for jobs. */
export type Heard = "taken" | "woken" | "waiting";

/** A connection to the Redis of one queue. */
export interface QueueConnection<Client> {
  /** The client for BullMQ, which queues or workers may share; core does not know its type. */
  readonly client: Client;
  /** Runs `make`, which may copy the client; the copies that it makes are closed with this connection. */
  adoptCopies<Made>(make: () => Made): Made;
  /** Resolves when Redis can be used; rejects if that takes longer than `timeoutMs`. */
  untilReady(timeoutMs: number): Promise<void>;
  /** Resolves with the answer of Redis; rejects if it takes longer than `timeoutMs`. A late answer is dropped. */
  inTime<Answer>(timeoutMs: number, question: Promise<Answer>): Promise<Answer>;
  isReady(): boolean;
  /** Calls back each time that Redis can be used again, until this is closed. */
  onReady(listener: () => void): void;
  /** Looks less often whether Redis is still there while `mayRest` says so, and that of all who share the client. */
  restWhile(mayRest: () => boolean): void;
  /** The clock of the server that holds a queue; the same one each time. */
  clockOf(queue: string): RedisClock;
  /** The lanes of queues, on this connection. */
  readonly lanes: LaneStore;
  /** Stores jobs in their order, all or none; says for each what is stored then, or why none is. */
  addJobs(request: AddRequest): Promise<readonly JobMet[] | NoPlace>;
  /** Lets the job go that was to run once more after one of this dedupeId, if that one has ended. */
  letFollow(queue: string, id: string, dedupeId: string): Promise<void>;
  /** The job that has a dedupeId, or had it last. */
  holderOf(queue: string, dedupeId: string): Promise<string | undefined>;
  /** Removes the done jobs of a queue that are no longer kept. */
  forgetDone(queue: string, kept: KeptJobs): Promise<void>;
  /** Removes the dead letters of a queue that are no longer kept; how many. None while somebody replays some. */
  forgetFailed(queue: string, kept: KeptFailed): Promise<number>;
  /** Keeps all dead letters of a queue for a minute, while some are replayed. */
  keepAllFailed(queue: string): Promise<void>;
  /**
   * How each job of up to a thousand ended, undefined if it has not: then its result is kept for this process from now
   * on for ten minutes, also when the job is no longer kept.
   */
  awaitJobs(
    queue: string,
    process: string,
    ids: readonly string[],
  ): Promise<readonly (JobEnd | undefined)[]>;
  /** Ends that for up to a thousand jobs. */
  toldOf(queue: string, process: string, ids: readonly string[]): Promise<void>;
  /** Records that a job starts. */
  noteBegun(queue: string, job: BegunJob): Promise<void>;
  /** What is known of a job that was fetched again, after a worker has died with it. */
  recall(queue: string, id: string): Promise<JobPast>;
  /** Has an idle worker look for jobs at once; by itself it does so within 5 s. */
  wakeIdle(queue: string): Promise<void>;
  /** Whether a worker has taken a job that is due; if not, another one is woken. */
  wakeFor(queue: string, id: string): Promise<Heard>;
  /** The jobs whose locks a worker holds: those of which the tokens begin so. */
  heldBy(queue: string, tokens: string): Promise<readonly HeldJob[]>;
  /** The runs of recurring jobs, on this connection. */
  readonly runs: RunStore;
  /** Sets a key if it has no value; whether it had none. */
  setIfFree(key: string, value: string): Promise<boolean>;
  /** Reads the entries of a stream that come after `lastId`, on one connection for all streams of a server. */
  readStream(stream: string, from: StreamStart): StreamReading;
  /** Closes the client with the last of those who share it. */
  close(): void;
}

/** Where the reading of a stream begins, and who hears of it. */
export interface StreamStart {
  readonly lastId: string;
  /** An entry: names and values in turns. */
  readonly onEntry: (fields: readonly string[]) => void;
  /** An error of the connection, which is tried again. */
  readonly onError: (error: Error) => void;
  /** The connection can be used, again. */
  readonly onReady: () => void;
}

export interface StreamReading {
  stop(): void;
}
