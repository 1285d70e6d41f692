import { Client, Pool, type Dispatcher } from "undici";
import type { Incoming } from "./incoming.ts";

/** The connections to all configured upstreams. Requests cannot be sent to any other address. */
export interface Pools {
  of(origin: string): Connections;
  /** Resolves when all requests in progress have ended. */
  close(): Promise<void>;
}

/** A request in undici's format. */
export interface UpstreamRequest extends Dispatcher.DispatchOptions {
  /**
   * The call whose `isOnUsedConnection` is set when the request is sent. Undefined for calls that
   * need no such mark.
   */
  marks: Incoming | undefined;
}

/** The connections to one upstream. */
export interface Connections {
  /** Sends a request, on an idle connection if one exists. */
  send(request: UpstreamRequest, call: Incoming): void;
  /** Sends a request on a new connection, which is closed afterwards. */
  sendAnew(request: UpstreamRequest, call: Incoming): void;
}

export function createPools(origins: readonly string[]): Pools {
  const pools = new Map([...new Set(origins)].map((origin) => [origin, createPool(origin)]));
  return {
    of: (origin) => pools.get(origin)!,
    async close() {
      await Promise.all([...pools.values()].map((pool) => pool.close()));
    },
  };
}

function createPool(origin: string): Connections & { close(): Promise<void> } {
  const pool = new Pool(origin, { factory: (url, options) => new MarkingClient(url, options) });
  const closing = new Set<Promise<void>>();
  return {
    send(request, call) {
      pool.dispatch(request, call);
    },
    sendAnew(request, call) {
      const client = new Client(origin);
      client.dispatch(request, call);
      // The connection closes when the request has ended.
      const closed = client.close();
      closing.add(closed);
      void closed.finally(() => closing.delete(closed));
    },
    async close() {
      await Promise.all([pool.close(), ...closing]);
    },
  };
}

/**
 * Marks each call that is sent on a connection which has already carried another response. A pool
 * wraps the handler of a request but passes the options on unchanged, so the mark is an option.
 */
class MarkingClient extends Client {
  #isConnected = false;

  constructor(origin: URL, options: object) {
    super(origin, options);
    this.on("connect", () => (this.#isConnected = true));
    this.on("disconnect", () => (this.#isConnected = false));
  }

  override dispatch(
    request: Dispatcher.DispatchOptions,
    handler: Dispatcher.DispatchHandler,
  ): boolean {
    const { marks } = request as UpstreamRequest;
    if (marks !== undefined) marks.isOnUsedConnection = this.#isConnected;
    return super.dispatch(request, handler);
  }
}
