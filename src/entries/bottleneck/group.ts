/* oxlint-disable typescript/no-explicit-any -- listeners of Bottleneck declare the types of errors themselves */
import { Bottleneck } from "./bottleneck.ts";
import { connectionOf, type IORedisConnection } from "./connection.ts";
import { Events } from "./events.ts";
import { readLimiterOptions, type ConstructorOptions } from "./options.ts";

const DEFAULT_TIMEOUT_MS = 300_000;

/** The events of a group. */
interface GroupEvents {
  error: (error: any) => unknown;
  created: (limiter: Bottleneck, key: string) => unknown;
}

// oxlint-disable-next-line typescript/no-unsafe-declaration-merging -- Events adds these methods
export interface Group {
  on<Name extends keyof GroupEvents>(name: Name, listener: GroupEvents[Name]): this;
  once<Name extends keyof GroupEvents>(name: Name, listener: GroupEvents[Name]): this;
  removeAllListeners(name?: string): void;
}

/** Limiters by key, created when they are first needed. */
// oxlint-disable-next-line typescript/no-unsafe-declaration-merging -- Events adds these methods
export class Group {
  readonly id: string;
  readonly datastore: string | undefined;
  readonly connection: IORedisConnection | undefined;
  readonly #events: Events;
  readonly #limiters = new Map<string, Bottleneck>();
  readonly #ownsConnection: boolean;
  #options: ConstructorOptions;
  #cleanup: NodeJS.Timeout | undefined;

  /** @throws {@link InvalidOptionError} when an option is unknown or can never work. */
  constructor(options: ConstructorOptions = {}) {
    this.#options = readLimiterOptions("new Bottleneck.Group()", options);
    this.#events = new Events(this);
    this.id = this.#options.id ?? "group-key";
    this.#ownsConnection = (this.#options.connection ?? undefined) === undefined;
    this.connection = connectionOf(this.#options);
    this.datastore = this.connection?.datastore;
    if (this.#ownsConnection) {
      this.connection?.on("error", (error: unknown) => void this.#events.trigger("error", error));
    }
    this.#startCleanup();
  }

  /** The limiter of a key. Creates the limiter if there is none. */
  readonly key = (key = ""): Bottleneck => {
    const known = this.#limiters.get(key);
    if (known !== undefined) return known;
    const { datastore: _datastore, ...options } = this.#options;
    const connection = this.connection;
    const { timeout = DEFAULT_TIMEOUT_MS } = options;
    const limiter = new Bottleneck({ ...options, connection, timeout, id: `${this.id}-${key}` });
    this.#limiters.set(key, limiter);
    void this.#events.trigger("created", limiter, key);
    return limiter;
  };

  /** Forgets the limiter of a key, and its counts of all processes. Resolves with whether there was one. */
  readonly deleteKey = async (key = ""): Promise<boolean> => {
    const limiter = this.#limiters.get(key);
    this.#limiters.delete(key);
    const isForgotten = await this.connection?.forget(`${this.id}-${key}`);
    await limiter?.disconnect();
    return limiter !== undefined || isForgotten === true;
  };

  limiters(): { readonly key: string; readonly limiter: Bottleneck }[] {
    return [...this.#limiters].map(([key, limiter]) => ({ key, limiter }));
  }

  keys(): string[] {
    return [...this.#limiters.keys()];
  }

  /** The keys over all processes. */
  async clusterKeys(): Promise<string[]> {
    if (this.connection === undefined) return this.keys();
    const start = `${this.id}-`;
    return (await this.connection.idsFrom(start)).map((id) => id.slice(start.length));
  }

  /** Changes the settings of limiters that are created from now on. */
  updateSettings(options: ConstructorOptions = {}): void {
    const read = readLimiterOptions("updateSettings()", options);
    this.#options = { ...this.#options, ...read };
    this.#startCleanup();
  }

  /** Closes the connections, unless the group was created with `connection`. */
  async disconnect(flush = true): Promise<void> {
    clearInterval(this.#cleanup);
    if (this.#ownsConnection) await this.connection?.disconnect(flush);
  }

  /** Deletes limiters that had no job for the option `timeout`. */
  #startCleanup(): void {
    clearInterval(this.#cleanup);
    const timeoutMs = this.#options.timeout ?? DEFAULT_TIMEOUT_MS;
    const cleanUp = async (key: string, limiter: Bottleneck): Promise<void> => {
      if (await limiter.isUnused(timeoutMs)) await this.deleteKey(key);
    };
    const cleanAll = (): void => {
      for (const [key, limiter] of this.#limiters) {
        const fail = (error: unknown): void => void this.#events.trigger("error", error);
        cleanUp(key, limiter).catch(fail);
      }
    };
    this.#cleanup = setInterval(cleanAll, timeoutMs / 2).unref();
  }
}

Object.assign(Bottleneck, { Group });
