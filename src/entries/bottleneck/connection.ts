import { Cluster, type Redis } from "ioredis";
import { reasonOf } from "../../core/describe.ts";
import { InvalidOptionError } from "../../core/errors.ts";
import type { Logger } from "../../core/logger.ts";
import { createSluice, type Sluice } from "../../sluice/create-sluice.ts";
import { connect, type RedisInput } from "../../stores/redis/connection.ts";
import { Events, type Emits } from "./events.ts";
import {
  readConnectionOptions,
  type ConnectionOptions,
  type ConstructorOptions,
} from "./options.ts";

/** The two clients of ioredis with which limiters send messages. */
export interface Clients {
  readonly client?: Redis | Cluster;
  readonly subscriber?: Redis | Cluster;
}

type Receive = (message: string) => void;

// oxlint-disable-next-line typescript/no-unsafe-declaration-merging -- Events adds these methods
export interface IORedisConnection extends Emits {}

/** Connections to Redis that limiters and groups share. Emits `"error"`. */
// oxlint-disable-next-line typescript/no-unsafe-declaration-merging -- Events adds these methods
export class IORedisConnection {
  readonly datastore = "ioredis";
  /** @internal */
  readonly sluice: Sluice;
  readonly #client: Redis | Cluster;
  readonly #subscriber: Redis | Cluster;
  readonly #receivers = new Map<string, Set<Receive>>();
  readonly #ready: Promise<Clients>;

  /** @throws {@link InvalidOptionError} when an option can never work. */
  constructor(options: ConnectionOptions = {}) {
    const read = readConnectionOptions("Bottleneck.IORedisConnection", options);
    const events = new Events(this);
    const redis = addressOf(read);
    const logger = logTo(events);
    this.sluice = createSluice({ redis, logger });
    this.#client = connect(redis, "subscriber");
    this.#subscriber = connect(redis, "subscriber");
    for (const client of [this.#client, this.#subscriber]) {
      client.on("error", (error) => void events.trigger("error", error));
    }
    this.#subscriber.on("message", (channel: string, message: string) => {
      for (const receive of this.#receivers.get(channel) ?? []) receive(message);
    });
    this.#ready = this.#client.ping().then(() => this.clients);
    this.#ready.catch((error: unknown) => void events.trigger("error", error));
  }

  /** Resolves with the clients when Redis has replied. */
  ready(): Promise<Clients> {
    return this.#ready;
  }

  /** Closes all connections. Limiters that use them fail from now on. */
  async disconnect(_flush = true): Promise<void> {
    this.#client.disconnect();
    this.#subscriber.disconnect();
    await this.sluice.close();
  }

  /** @internal */
  get clients(): Clients {
    return { client: this.#client, subscriber: this.#subscriber };
  }

  /** @internal */
  async listen(channel: string, receive: Receive): Promise<void> {
    const receivers = this.#receivers.get(channel) ?? new Set();
    this.#receivers.set(channel, receivers.add(receive));
    await this.#subscriber.subscribe(channel);
  }

  /** @internal */
  async unlisten(channel: string, receive: Receive): Promise<void> {
    const receivers = this.#receivers.get(channel);
    receivers?.delete(receive);
    if (receivers?.size !== 0) return;
    this.#receivers.delete(channel);
    await this.#subscriber.unsubscribe(channel);
  }

  /** @internal */
  async publish(channel: string, message: string): Promise<void> {
    await this.#client.publish(channel, message);
  }

  /** The ids of the limiters of all processes that begin with `start`. @internal */
  async idsFrom(start: string): Promise<string[]> {
    const prefix = keyOf(start).slice(0, -1);
    const pattern = `${prefix.replaceAll(/[\\*?[\]]/g, String.raw`\$&`)}*`;
    const nodes = this.#client instanceof Cluster ? this.#client.nodes("master") : [this.#client];
    const keys: string[] = [];
    for (const node of nodes) {
      let cursor = "0";
      do {
        const [next, found] = await node.scan(cursor, "MATCH", pattern, "COUNT", 1_000);
        keys.push(...found);
        cursor = next;
      } while (cursor !== "0");
    }
    return [...new Set(keys)].map((key) => key.slice(keyOf("").length - 1, -1));
  }

  /** Deletes the counts and settings of a limiter. Resolves with whether there were any. @internal */
  async forget(id: string): Promise<boolean> {
    return (await this.#client.del(keyOf(id))) > 0;
  }
}

/** The Redis key of the counts and settings of a limiter, also the channel of its messages. */
export function keyOf(id: string): string {
  return `sluice:bottleneck:{${id}}`;
}

/** Sends the warnings of a sluice to the listeners of `"error"` and `"debug"`. */
export function logTo(events: Events): Logger {
  return {
    warn: (facts, message) => void events.trigger("debug", message, facts),
    error: (facts, message) => {
      void events.trigger("error", Object.assign(new Error(reasonOf(message)), facts));
    },
  };
}

function addressOf({ client, clientOptions, clusterNodes }: ConnectionOptions): RedisInput {
  if (client !== undefined && client !== null) return client as RedisInput;
  const options = clientOptions ?? {};
  if (clusterNodes !== undefined && clusterNodes !== null) {
    // Sluice copies the client, so this one never connects.
    return new Cluster(clusterNodes as string[], { ...options, lazyConnect: true });
  }
  return "url" in options ? (options.url as string) : options;
}

/** Returns the connection that the options of a limiter or group name, or a new one. Undefined without Redis. */
export function connectionOf(options: ConstructorOptions): IORedisConnection | undefined {
  const { connection, datastore, clientOptions, clusterNodes } = options;
  if (connection instanceof IORedisConnection) return connection;
  if (connection !== undefined && connection !== null) {
    const remedy = "give a Bottleneck.IORedisConnection of sluice/bottleneck";
    const where = "new Bottleneck()";
    throw new InvalidOptionError({ where, option: "connection", value: connection, remedy });
  }
  if (datastore === undefined || datastore === null || datastore === "local") return undefined;
  return new IORedisConnection({ clientOptions, clusterNodes });
}
