/* oxlint-disable typescript/no-explicit-any -- listeners of Bottleneck declare the types of errors themselves */
import { CostTooLargeError, InvalidOptionError } from "../../core/errors.ts";
import { createSluice, type Sluice } from "../../sluice/create-sluice.ts";
import { Batcher } from "./batcher.ts";
import { Cluster } from "./cluster.ts";
import { connectionOf, IORedisConnection, keyOf, logTo, type Clients } from "./connection.ts";
import { Events, type Listener } from "./events.ts";
import {
  BottleneckError,
  createJob,
  JobQueue,
  Statuses,
  type Counts,
  type EventInfo,
  type Job,
  type Status,
  type Task,
} from "./job.ts";
import { giveBack, Limits, type Held, type SettingsFrom } from "./limits.ts";
import {
  DEFAULTS,
  readLimiterOptions,
  readStopOptions,
  settingsAfter,
  STRATEGY,
  type BatcherOptions,
  type ConnectionOptions,
  type ConstructorOptions,
  type JobOptions,
  type Settings,
  type StopOptions,
  type Strategy,
} from "./options.ts";

/** How long a limiter waits before it asks an unreachable Redis again, in ms. */
const RETRY_MS = 500;
const DEFAULT_PENALTY_MS = 5_000;

interface EventInfoRetryable extends EventInfo {
  readonly retryCount: number;
}
interface EventInfoDropped extends EventInfo {
  readonly task: Task;
  readonly promise: Promise<unknown>;
}
interface EventInfoQueued extends EventInfo {
  readonly reachedHWM: boolean;
  readonly blocked: boolean;
}

/** The events of a limiter, and what their listeners receive. */
interface LimiterEvents {
  error: (error: any) => unknown;
  empty: () => unknown;
  idle: () => unknown;
  depleted: (empty: boolean) => unknown;
  message: (message: string) => unknown;
  debug: (message: string, info: any) => unknown;
  dropped: (dropped: EventInfoDropped) => unknown;
  received: (info: EventInfo) => unknown;
  queued: (info: EventInfoQueued) => unknown;
  scheduled: (info: EventInfo) => unknown;
  executing: (info: EventInfoRetryable) => unknown;
  failed: (error: any, info: EventInfoRetryable) => unknown;
  retry: (message: string, info: EventInfoRetryable) => unknown;
  done: (info: EventInfoRetryable) => unknown;
}

/** A function that waits for its turn in a limiter. */
interface Wrapped<Args extends readonly unknown[], Result> {
  (...args: Args): Promise<Result>;
  /** Calls the function as a job with options. */
  withOptions(options: JobOptions, ...args: Args): Promise<Result>;
}

// oxlint-disable-next-line typescript/no-unsafe-declaration-merging -- Events adds these methods
export interface Bottleneck {
  on<Name extends keyof LimiterEvents>(name: Name, listener: LimiterEvents[Name]): this;
  once<Name extends keyof LimiterEvents>(name: Name, listener: LimiterEvents[Name]): this;
  removeAllListeners(name?: string): void;
}

/**
 * A limiter with the options, methods, events and errors of Bottleneck 2, over buckets of Sluice. With
 * `datastore: "ioredis"`, all processes with the same `id` share its limits.
 */
// oxlint-disable-next-line typescript/no-unsafe-declaration-merging -- Events adds these methods
export class Bottleneck {
  static readonly strategy: typeof STRATEGY = STRATEGY;
  static readonly BottleneckError: typeof BottleneckError = BottleneckError;
  static readonly Events: typeof Events = Events;
  static readonly Batcher: typeof Batcher = Batcher;
  static readonly IORedisConnection: typeof IORedisConnection = IORedisConnection;
  static readonly RedisConnection: typeof IORedisConnection = IORedisConnection;
  static readonly version = "2.19.5";
  /** For code that was compiled from `import Bottleneck from "bottleneck"` to CommonJS. */
  static readonly default: typeof Bottleneck = Bottleneck;
  /** Set by `group.ts`. */
  static readonly Group: typeof import("./group.ts").Group;

  readonly id: string;
  readonly datastore: "local" | "redis" | "ioredis";
  readonly connection: IORedisConnection | undefined;
  readonly #events: Events;
  readonly #statuses: Statuses;
  readonly #queue = new JobQueue();
  readonly #sluice: Sluice;
  readonly #limits: Limits;
  /** Undefined without Redis. */
  readonly #cluster: Cluster | undefined;
  readonly #ownsConnection: boolean;
  readonly #promiseClass: PromiseConstructor;
  readonly #ready: Promise<Clients>;
  #rejectOnDrop: boolean;
  #settings: Settings;
  #chained: Bottleneck | null = null;
  /** The functions that drop the jobs whose start is planned. */
  readonly #planned = new Set<(message: string) => void>();
  #submitting: Promise<unknown> = Promise.resolve();
  #submits = 0;
  #draining: Promise<unknown> = Promise.resolve();
  /** The wait for what the first queued job needs. */
  #waiting: { readonly weight: number; readonly abort: () => void } | undefined;
  #retryTimer: NodeJS.Timeout | undefined;
  #blockedUntilMs = 0;
  #runningWeight = 0;
  #doneWeight = 0;
  #usedAtMs = Date.now();
  /** Set by `stop()`. */
  #refusal: string | undefined;
  #dropMessage: string | undefined;

  /** @throws {@link InvalidOptionError} when an option is unknown or can never work. */
  constructor(options: ConstructorOptions = {}, ...others: readonly unknown[]) {
    if (typeof options !== "object" || options === null || others.length > 0) {
      const what = "new Bottleneck() takes one object of options, as Bottleneck 2 does";
      throw new BottleneckError(`${what}; the positional arguments of Bottleneck 1 are gone.`);
    }
    const read = readLimiterOptions("new Bottleneck()", options);
    this.id = read.id ?? "<no-id>";
    this.#events = new Events(this);
    this.#rejectOnDrop = read.rejectOnDrop ?? true;
    this.#statuses = new Statuses(read.trackDoneStatus ?? false);
    this.#promiseClass = (read.Promise ?? Promise) as PromiseConstructor;
    this.#settings = settingsAfter(DEFAULTS, read);
    this.#ownsConnection = (read.connection ?? undefined) === undefined;
    this.connection = connectionOf(read);
    this.datastore = this.connection === undefined ? "local" : (read.datastore ?? "ioredis");
    this.#sluice =
      this.connection?.sluice ?? createSluice({ redis: "memory", logger: logTo(this.#events) });
    this.#limits = new Limits(this.#sluice, this.id, this.#settings);
    if (this.#ownsConnection) {
      this.connection?.on("error", (error: unknown) => void this.#events.trigger("error", error));
    }
    this.#cluster = this.connection && this.#join(this.connection, read);
    this.#ready = this.#connect(read.clearDatastore ?? false);
    this.#ready.catch((error: unknown) => void this.#events.trigger("error", error));
  }

  /** Resolves with the clients of ioredis when Redis has replied. */
  ready(): Promise<Clients> {
    return this.#as(this.#ready);
  }

  clients(): Clients {
    return this.connection?.clients ?? {};
  }

  /** Sends a text to the `"message"` listeners of all limiters with this id. */
  publish(message: unknown): Promise<void> {
    return this.#as(this.#send("message", String(message)));
  }

  /** Closes the connections, unless the limiter was created with `connection`. */
  async disconnect(flush = true): Promise<void> {
    clearTimeout(this.#retryTimer);
    this.#restartWait();
    await this.#cluster?.close(flush);
    await this.connection?.unlisten(keyOf(this.id), this.#receive);
    if (this.connection === undefined) await this.#sluice.close();
    else if (this.#ownsConnection) await this.connection.disconnect(flush);
  }

  /** Makes all jobs of this limiter also jobs of another one. `null` ends that. */
  chain(limiter?: Bottleneck | null): this {
    this.#chained = limiter ?? null;
    return this;
  }

  /** The number of queued jobs of this limiter, of one priority or of all. */
  queued(priority?: number): number {
    return this.#queue.count(priority);
  }

  /** The number of queued jobs over all processes. */
  clusterQueued(): Promise<number> {
    return this.#as(this.#total("queued"));
  }

  /** True if no job is received or queued. */
  empty(): boolean {
    return this.queued() === 0 && this.#submits === 0;
  }

  /** The total weight of the running jobs over all processes. */
  running(): Promise<number> {
    return this.#as(this.#total("running"));
  }

  /** The total weight of the done jobs over all processes. */
  done(): Promise<number> {
    return this.#as(this.#total("done"));
  }

  jobStatus(id: string): Status | null {
    return this.#statuses.of(id);
  }

  jobs(status?: Status): string[] {
    return this.#statuses.ids(status);
  }

  counts(): Counts {
    return this.#statuses.counts();
  }

  /** True if a job of this weight would start now. */
  check(weight = 1): Promise<boolean> {
    return this.#as(this.#isFree(weight));
  }

  /** Runs a function as a job. Its last argument is a callback: `submit(fn, a, b, callback)`. */
  submit(...given: readonly unknown[]): Promise<boolean> {
    const { options, task: fn, args } = readCall("submit()", given);
    const callback = args.at(-1) as ((...results: unknown[]) => void) | null | undefined;
    const task: Task = (...taken) =>
      new Promise<unknown[]>((resolve, reject) => {
        fn(...taken, (...results: unknown[]) => {
          const isFailed = results[0] !== undefined && results[0] !== null;
          // oxlint-disable-next-line typescript/prefer-promise-reject-errors -- the callback gets all results
          (isFailed ? reject : resolve)(results);
        });
      });
    const job = createJob(task, args.slice(0, -1), options);
    const report = (results: unknown): void => {
      callback?.(...(Array.isArray(results) ? (results as unknown[]) : [results]));
    };
    job.promise.then(report, report);
    return this.#as(this.#receiveJob(job));
  }

  /** Runs a function as a job: `schedule(fn, ...args)` or `schedule(options, fn, ...args)`. */
  schedule<Result, Args extends readonly unknown[] = readonly any[]>(
    fn: (...args: Args) => PromiseLike<Result> | Result,
    ...args: Args
  ): Promise<Result>;
  schedule<Result, Args extends readonly unknown[] = readonly any[]>(
    options: JobOptions,
    fn: (...args: Args) => PromiseLike<Result> | Result,
    ...args: Args
  ): Promise<Result>;
  schedule<Result, First>(
    fn: (first: First) => PromiseLike<Result> | Result,
    first: First,
  ): Promise<Result>;
  schedule<Result, First>(
    options: JobOptions,
    fn: (first: First) => PromiseLike<Result> | Result,
    first: First,
  ): Promise<Result>;
  schedule(...given: readonly unknown[]): Promise<unknown> {
    const { options, task, args } = readCall("schedule()", given);
    const job = createJob(task, args, options);
    void this.#receiveJob(job);
    return this.#as(job.promise);
  }

  /** Returns a function with the same arguments and result whose calls are jobs. */
  wrap<Result, Args extends readonly unknown[] = readonly any[]>(
    fn: (...args: Args) => PromiseLike<Result> | Result,
  ): Wrapped<Args, Result> {
    const schedule = this.schedule.bind(this) as (...given: unknown[]) => Promise<Result>;
    function wrapped(this: unknown, ...args: Args): Promise<Result> {
      return schedule(fn.bind(this), ...args);
    }
    const withOptions = (options: JobOptions, ...args: Args): Promise<Result> =>
      schedule(options, fn, ...args);
    return Object.assign(wrapped, { withOptions });
  }

  /**
   * Changes settings, for all limiters with this id. Jobs whose start is planned keep theirs.
   *
   * @throws {@link InvalidOptionError} when an option is unknown or can never work.
   */
  updateSettings(options: ConstructorOptions = {}): Promise<this> {
    const read = readLimiterOptions("updateSettings()", options);
    return this.#as(this.#update(read));
  }

  /** The value of the reservoir, or null without one. */
  currentReservoir(): Promise<number | null> {
    return this.#as(this.#limits.reservoir());
  }

  /** Adds to the reservoir. Resolves with the new value. */
  incrementReservoir(change = 0): Promise<number | null> {
    return this.#as(this.#increment(change));
  }

  /**
   * Refuses new jobs. Resolves when all jobs that have started, and with `dropWaitingJobs: false` all others too, have
   * ended.
   */
  stop(options: StopOptions = {}): Promise<void> {
    const read = readStopOptions(options);
    if (this.#refusal !== undefined) {
      return this.#as(Promise.reject(new BottleneckError("stop() has already been called")));
    }
    this.#refusal =
      read.enqueueErrorMessage ?? "This limiter has been stopped and cannot accept new jobs.";
    if (read.dropWaitingJobs ?? true)
      this.#drop(read.dropErrorMessage ?? "This limiter has been stopped.");
    return this.#as(this.#finished());
  }

  /** True if no process started a job in the last `timeoutMs`, and none waits here. For groups. @internal */
  async isUnused(timeoutMs: number): Promise<boolean> {
    if (this.#statuses.unfinished > 0 || this.#usedAtMs + timeoutMs >= Date.now()) return false;
    return this.#cluster?.isForgotten() ?? true;
  }

  /** Converts a promise to the class of the option `Promise`. */
  #as<Result>(promise: Promise<Result>): Promise<Result> {
    if (this.#promiseClass === Promise) return promise;
    return new this.#promiseClass((resolve, reject) => void promise.then(resolve, reject));
  }

  #join(connection: IORedisConnection, { timeout }: ConstructorOptions): Cluster {
    return new Cluster({
      id: this.id,
      connection,
      aliveMs: this.#settings.clientTimeout,
      keptMs: timeout ?? undefined,
      jobs: () => ({ queued: this.queued(), running: this.#runningWeight }),
      settings: () => this.#sharedSettings(),
      onIdle: () => {
        if (this.#runningWeight === 0 && this.empty()) void this.#events.trigger("idle");
      },
      onError: (error) => void this.#events.trigger("error", error),
    });
  }

  async #connect(doesClear: boolean): Promise<Clients> {
    if (this.connection === undefined) return {};
    const clients = await this.connection.ready();
    await this.connection.listen(keyOf(this.id), this.#receive);
    if (doesClear) await this.connection.forget(this.id);
    const { settings, isNew } = await this.#cluster!.join();
    const own = this.#sharedSettings();
    if (settings !== own || isNew) await this.#adopt(settings, settings === own ? "new" : "joined");
    if (doesClear) await this.connection.publish(keyOf(this.id), this.#settingsMessage());
    return clients;
  }

  #sharedSettings(): string {
    return JSON.stringify(this.#limits.sharedSettings());
  }

  #settingsMessage(): string {
    const message = { by: this.#cluster?.name, settings: this.#sharedSettings() };
    return `settings:${JSON.stringify(message)}`;
  }

  async #send(topic: "message" | "blocked", text: string): Promise<void> {
    if (this.connection !== undefined) {
      await this.#ready;
      await this.connection.publish(keyOf(this.id), `${topic}:${text}`);
    } else if (topic === "message") {
      await nextTick();
      void this.#events.trigger("message", text);
    }
  }

  /** Handles a message of any limiter with this id, also of this one. */
  readonly #receive = (message: string): void => {
    const at = message.indexOf(":");
    const [topic, text] = [message.slice(0, at), message.slice(at + 1)];
    if (topic === "message") void this.#events.trigger("message", text);
    else if (topic === "blocked") this.#block(Number(text));
    else if (topic === "settings") void this.#applySettings(text);
  };

  async #applySettings(text: string): Promise<void> {
    const { by, settings } = JSON.parse(text) as { by: string; settings: string };
    if (by === this.#cluster?.name) return;
    await this.#adopt(settings, "received");
    void this.#drain();
  }

  /** Uses the settings that all limiters with this id share. */
  async #adopt(stored: string, from: SettingsFrom): Promise<void> {
    this.#settings = { ...DEFAULTS, ...(JSON.parse(stored) as Settings) };
    this.#restartWait();
    await this.#limits.adopt(this.#settings, from);
  }

  async #update(read: ConstructorOptions): Promise<this> {
    await (this.#cluster === undefined ? nextTick() : this.#ready);
    const settings = settingsAfter(this.#settings, read);
    const isReservoirSet = typeof read.reservoir === "number";
    this.#settings = settings;
    // A wait that ends while the limits change could take what nothing uses.
    this.#restartWait();
    await this.#limits.update(settings);
    if (isReservoirSet) {
      const current = await this.#limits.reservoir();
      await this.#limits.addToReservoir(read.reservoir - (current ?? 0));
    }
    if (typeof read.rejectOnDrop === "boolean") this.#rejectOnDrop = read.rejectOnDrop;
    await this.#cluster?.update();
    await this.connection?.publish(keyOf(this.id), this.#settingsMessage());
    await this.#drain();
    return this;
  }

  async #increment(change: number): Promise<number | null> {
    if (!Number.isSafeInteger(change)) {
      const remedy = "give a whole number";
      const where = "incrementReservoir()";
      throw new InvalidOptionError({ where, option: "incrementBy", value: change, remedy });
    }
    this.#restartWait();
    const reservoir = await this.#limits.addToReservoir(change);
    void this.#drain();
    return reservoir;
  }

  async #total(name: "queued" | "running" | "done"): Promise<number> {
    if (this.#cluster !== undefined) {
      await this.#ready;
      return (await this.#cluster.report())[name];
    }
    await nextTick();
    return { queued: this.queued(), running: this.#runningWeight, done: this.#doneWeight }[name];
  }

  async #isFree(weight: number): Promise<boolean> {
    await nextTick();
    return this.#blockedUntilMs < Date.now() && (await this.#limits.isFree(weight));
  }

  async #receiveJob(job: Job): Promise<boolean> {
    const { args, options } = job;
    if (this.#refusal !== undefined) {
      job.reject(new BottleneckError(this.#refusal));
      return false;
    }
    if (this.#statuses.of(options.id) !== null) {
      const what = `A job with the same id already exists (id=${options.id})`;
      job.reject(new BottleneckError(what));
      return false;
    }
    this.#statuses.set(options.id, "RECEIVED");
    void this.#events.trigger("received", { args, options });
    this.#submits += 1;
    const submitted = this.#submitting.then(() => this.#submit(job));
    this.#submitting = submitted.catch(() => undefined);
    return submitted;
  }

  /** Queues a job, unless the strategy drops it. Resolves with whether `highWater` was reached. */
  async #submit(job: Job): Promise<boolean> {
    const { args, options } = job;
    await (this.#cluster === undefined ? nextTick() : this.#ready);
    const { reachedHWM, isAdmitted } = await this.#admit(job).finally(() => (this.#submits -= 1));
    if (!isAdmitted) return reachedHWM;
    this.#statuses.set(options.id, "QUEUED");
    void this.#events.trigger("queued", { args, options, reachedHWM, blocked: false });
    this.#queue.push(job);
    this.#cluster?.note();
    await this.#drain();
    return reachedHWM;
  }

  /** Drops a job that may not join the queue. */
  async #admit(job: Job): Promise<{ readonly reachedHWM: boolean; readonly isAdmitted: boolean }> {
    const { weight } = job.options;
    const { highWater, maxConcurrent, strategy, minTime, penalty } = this.#settings;
    if (this.#dropMessage !== undefined) {
      this.#dropJob(job, new BottleneckError(this.#dropMessage));
      return { reachedHWM: false, isAdmitted: false };
    }
    if (maxConcurrent !== null && weight > maxConcurrent) {
      const what = `Impossible to add a job having a weight of ${weight}`;
      const limit = `to a limiter having a maxConcurrent setting of ${maxConcurrent}`;
      this.#dropJob(job, new BottleneckError(`${what} ${limit}`));
      return { reachedHWM: false, isAdmitted: false };
    }
    const isFull = highWater !== null && this.queued() === highWater;
    const reachedHWM = isFull && !(await this.#isFree(weight));
    const isBlocked = this.#blockedUntilMs >= Date.now();
    if (strategy === STRATEGY.BLOCK && (reachedHWM || isBlocked)) {
      const penaltyMs = penalty ?? (15 * minTime || DEFAULT_PENALTY_MS);
      this.#block(penaltyMs);
      await this.#send("blocked", String(penaltyMs));
      this.#dropJob(job);
      return { reachedHWM: true, isAdmitted: false };
    }
    return { reachedHWM, isAdmitted: !reachedHWM || this.#makeRoom(job, strategy) };
  }

  /** Drops a job for a new one. Returns false if it dropped the new one. */
  #makeRoom(job: Job, strategy: Strategy): boolean {
    const { priority } = job.options;
    const from = strategy === STRATEGY.LEAK ? priority : priority + 1;
    const dropped = strategy === STRATEGY.OVERFLOW ? undefined : this.#queue.dropFrom(from);
    this.#dropJob(dropped ?? job);
    return dropped !== undefined;
  }

  #block(penaltyMs: number): void {
    this.#blockedUntilMs = Date.now() + penaltyMs;
    for (const job of this.#queue.removeAll()) this.#dropJob(job);
    this.#restartWait();
  }

  #dropJob(
    job: Job,
    error: unknown = new BottleneckError("This job has been dropped by Bottleneck"),
  ): void {
    const { args, options, task, promise } = job;
    if (!this.#statuses.remove(options.id)) return;
    this.#cluster?.note();
    if (this.#rejectOnDrop) job.reject(error);
    void this.#events.trigger("dropped", { args, options, task, promise });
  }

  /** Starts all jobs that may start, in order. Resolves when the first of the others has to wait. */
  #drain(): Promise<void> {
    const drained = this.#draining.then(() => this.#drainAll());
    this.#draining = drained.catch((error: unknown) => this.#failDrain(error));
    return this.#draining as Promise<void>;
  }

  /** Asks again later for a queue whose store did not answer. */
  #failDrain(error: unknown): void {
    void this.#events.trigger("error", error);
    clearTimeout(this.#retryTimer);
    this.#retryTimer = setTimeout(() => void this.#drain(), RETRY_MS);
  }

  async #drainAll(): Promise<void> {
    for (;;) {
      const job = this.#queue.first();
      if (job === undefined || this.#dropMessage !== undefined) return this.#restartWait();
      const { weight } = job.options;
      if (this.#waiting?.weight === weight) return;
      this.#restartWait();
      const held = await this.#tryTake(job);
      if (held === undefined && this.#queue.first() === job) return this.#wait(weight);
      if (held !== undefined) await this.#plan(weight, held);
    }
  }

  /** Returns undefined if the job has to wait, or can never start and was dropped. */
  async #tryTake(job: Job): Promise<Held | undefined> {
    try {
      return await this.#limits.tryTake(job.options.weight);
    } catch (error) {
      if (!(error instanceof CostTooLargeError)) throw error;
      if (this.#queue.first() === job) this.#dropJob(this.#queue.shift()!, error);
      return undefined;
    }
  }

  /** Waits in the background for what the first job needs. */
  #wait(weight: number): void {
    const controller = new AbortController();
    const waiting = { weight, abort: () => controller.abort() };
    this.#waiting = waiting;
    this.#limits.take(weight, controller.signal).then(
      (held) => {
        if (this.#waiting === waiting) this.#waiting = undefined;
        const planned = this.#draining.then(() => this.#plan(weight, held));
        this.#draining = planned.catch((error: unknown) => this.#failDrain(error));
        void this.#drain();
      },
      (error: unknown) => {
        if (this.#waiting === waiting) this.#waiting = undefined;
        if (!controller.signal.aborted) this.#failDrain(error);
      },
    );
  }

  #restartWait(): void {
    this.#waiting?.abort();
    this.#waiting = undefined;
  }

  /** Gives what was taken to the first job, if that is still one of this weight. */
  async #plan(weight: number, held: Held): Promise<void> {
    const job = this.#queue.first();
    if (job?.options.weight !== weight || this.#dropMessage !== undefined) {
      return this.#limits.giveBackUnused(held);
    }
    this.#queue.shift();
    this.#runningWeight += weight;
    this.#cluster?.note();
    this.#usedAtMs = Date.now();
    const isEmpty = this.empty();
    if (isEmpty) void this.#events.trigger("empty");
    this.#run(job, held, 0);
    if (this.#settings.reservoir === null || this.#events.listenerCount("depleted") === 0) return;
    if ((await this.#limits.reservoir()) === 0) void this.#events.trigger("depleted", isEmpty);
  }

  /** Plans the start of a job, or of its next attempt in `retryMs`. */
  #run(job: Job, held: Held, retryMs: number): void {
    const { args, options } = job;
    const controller = new AbortController();
    const isRetry = job.retryCount > 0;
    if (!isRetry) this.#statuses.set(options.id, "RUNNING");
    void this.#events.trigger("scheduled", { args, options });
    const drop = (message: string): void => {
      controller.abort();
      this.#planned.delete(drop);
      this.#runningWeight -= options.weight;
      giveBack(held);
      this.#dropJob(job, new BottleneckError(message));
    };
    if (!isRetry) this.#planned.add(drop);
    const start = isRetry ? nextTick(retryMs) : this.#start(controller.signal);
    start.then(
      () => {
        this.#planned.delete(drop);
        if (!controller.signal.aborted) this.#execute(job, held);
      },
      (error: unknown) => {
        if (!controller.signal.aborted) void this.#events.trigger("error", error);
      },
    );
  }

  /** Waits for the pace. */
  async #start(signal: AbortSignal): Promise<void> {
    const blockedMs = this.#blockedUntilMs - Date.now();
    await nextTick(blockedMs > 0 ? blockedMs + this.#settings.minTime : 0);
    while (!signal.aborted) {
      try {
        return await this.#limits.pace(signal);
      } catch (error) {
        if (signal.aborted) return;
        void this.#events.trigger("error", error);
        await nextTick(RETRY_MS);
      }
    }
  }

  #execute(job: Job, held: Held): void {
    const { args, options, retryCount, task } = job;
    const info: EventInfoRetryable = { args, options, retryCount };
    let isOver = false;
    let timer: NodeJS.Timeout | undefined;
    /** Returns true for the first end of this attempt: by its result, its error, or its expiration. */
    const end = (): boolean => {
      if (isOver) return false;
      clearTimeout(timer);
      isOver = true;
      return true;
    };
    this.#statuses.set(options.id, "EXECUTING");
    void this.#events.trigger("executing", info);
    if (options.expiration !== null) {
      timer = setTimeout(() => {
        const what = `This job timed out after ${options.expiration} ms.`;
        if (end()) void this.#fail(job, held, new BottleneckError(what));
      }, options.expiration);
    }
    const chained = this.#chained;
    const run = async (): Promise<unknown> =>
      chained === null ? task(...args) : chained.schedule(options, task, ...args);
    run().then(
      (result) => {
        if (!end()) return;
        this.#free(job, held, info);
        job.resolve(result);
      },
      (error: unknown) => {
        if (end()) void this.#fail(job, held, error);
      },
    );
  }

  async #fail(job: Job, held: Held, error: unknown): Promise<void> {
    const { args, options, retryCount } = job;
    const info: EventInfoRetryable = { args, options, retryCount };
    const retry = await this.#events.trigger("failed", error, info);
    if (retry === undefined || retry === null) {
      this.#free(job, held, info);
      job.reject(error);
      return;
    }
    const retryMs = Math.max(0, Math.trunc(Number(retry)) || 0);
    void this.#events.trigger("retry", `Retrying ${options.id} after ${retryMs} ms`, info);
    job.retryCount += 1;
    this.#run(job, held, retryMs);
  }

  #free({ options }: Job, held: Held, info: EventInfoRetryable): void {
    this.#statuses.set(options.id, "DONE");
    void this.#events.trigger("done", info);
    this.#runningWeight -= options.weight;
    this.#doneWeight += options.weight;
    giveBack(held);
    this.#cluster?.noteEnd(options.weight);
    void this.#events.trigger("debug", `Freed ${options.id}`, info);
    if (this.#cluster === undefined && this.#runningWeight === 0 && this.empty()) {
      void this.#events.trigger("idle");
    }
  }

  #drop(message: string): void {
    this.#dropMessage = message;
    this.#restartWait();
    for (const drop of this.#planned) drop(message);
    for (const job of this.#queue.removeAll()) this.#dropJob(job, new BottleneckError(message));
  }

  /** Resolves when no job is unfinished. */
  async #finished(): Promise<void> {
    while (this.#statuses.unfinished > 0) await this.#nextEnd();
  }

  #nextEnd(): Promise<void> {
    return new Promise((resolve) => {
      const once = this.once.bind(this) as (name: string, listener: Listener) => unknown;
      once("done", () => resolve());
      once("dropped", () => resolve());
    });
  }
}

/** Reads `(fn, ...args)` or `(options, fn, ...args)`. */
function readCall(
  where: string,
  given: readonly unknown[],
): { readonly options: JobOptions; readonly task: Task; readonly args: readonly unknown[] } {
  const hasOptions = typeof given[0] !== "function";
  const [options, task, ...args] = hasOptions ? given : [{}, ...given];
  if (typeof task !== "function") {
    const remedy = "give a function, or options and a function";
    throw new InvalidOptionError({ where, option: "fn", value: task, remedy });
  }
  return { options: options as JobOptions, task: task as Task, args };
}

function nextTick(ms = 0): Promise<void> {
  return new Promise((resolve) => void setTimeout(resolve, ms));
}

/** The types of Bottleneck, by the names under which its users import them. */
export declare namespace Bottleneck {
  export type {
    BatcherOptions,
    ConnectionOptions as IORedisConnectionOptions,
    ConnectionOptions as RedisConnectionOptions,
    ConstructorOptions,
    Counts,
    EventInfo,
    EventInfoDropped,
    EventInfoQueued,
    EventInfoRetryable,
    JobOptions,
    Status,
    StopOptions,
    Strategy,
    Clients as ClientsList,
  };
  export type Group = import("./group.ts").Group;
  export type Batcher = import("./batcher.ts").Batcher;
  export type IORedisConnection = import("./connection.ts").IORedisConnection;
  export type RedisConnection = import("./connection.ts").IORedisConnection;
  export type BottleneckError = import("./job.ts").BottleneckError;
  export type Events = import("./events.ts").Events;
}
