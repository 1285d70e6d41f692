import { Duplex } from "node:stream";
import { AbstractConnector, type RedisOptions } from "ioredis";
import { createServerClock, type ServerClock } from "./clock.ts";
import type { MemoryServer } from "./server/server.ts";

type Connector = NonNullable<RedisOptions["Connector"]>;
type Connecting = ReturnType<InstanceType<Connector>["connect"]>;

/** A Redis in this process, which ioredis reaches without a network. */
export interface LocalRedis {
  /** The options of a client of this Redis. */
  readonly options: RedisOptions;
  /** The time by which `advance` has moved the clock forward. */
  readonly skippedMs: () => number;
  /** Moves the clock of the server forward. Keys for which `isKept` returns true live as long as before. */
  advance(ms: number, isKept: (key: string) => boolean): Promise<void>;
  /** Deletes all keys. */
  close(): Promise<void>;
}

/** The server is loaded with the first connection, so that buckets in memory need not load it. */
export function createLocalRedis(): LocalRedis {
  let opening: Promise<MemoryServer> | undefined;
  const clock = createServerClock();
  const open = (): Promise<MemoryServer> => (opening ??= openServer(clock));

  class LocalConnector extends AbstractConnector {
    constructor() {
      super(0);
    }

    override async connect(): Connecting {
      const stream = new LocalStream(await open());
      this.stream = stream as unknown as Awaited<Connecting>;
      return this.stream;
    }
  }

  return {
    skippedMs: clock.skippedMs,
    options: { Connector: LocalConnector, host: "memory" },
    async advance(ms, isKept) {
      (await open()).advance(ms, isKept);
    },
    async close() {
      (await opening)?.close();
    },
  };
}

async function openServer(clock: ServerClock): Promise<MemoryServer> {
  const { createMemoryServer } = await import("./server/server.ts");
  return createMemoryServer(clock);
}

/** The client's end of a connection. ioredis takes it for a socket. */
class LocalStream extends Duplex {
  readonly connecting = false;
  readonly #connection: ReturnType<MemoryServer["connect"]>;
  #sent: Buffer[] = [];

  constructor(server: MemoryServer) {
    super({ allowHalfOpen: false });
    this.#connection = server.connect({
      write: (bytes) => void this.push(bytes),
      end: () => void this.push(null),
      address: "memory",
    });
  }

  override _read(): void {}

  /** Passes on everything that the process writes in one turn of the event loop, as a socket does. */
  override _write(bytes: Buffer, _encoding: string, done: () => void): void {
    if (this.#sent.push(bytes) === 1) setImmediate(() => this.#deliver());
    done();
  }

  #deliver(): void {
    const [first, ...others] = this.#sent;
    this.#sent = [];
    if (this.destroyed) return;
    this.#connection.receive(others.length === 0 ? first! : Buffer.concat([first!, ...others]));
  }

  override _final(done: () => void): void {
    this.push(null);
    done();
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.#connection.close();
    done(error);
  }

  setNoDelay(): this {
    return this;
  }

  setKeepAlive(): this {
    return this;
  }

  setTimeout(): this {
    return this;
  }
}
