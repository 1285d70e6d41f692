import type { Cluster, Redis } from "ioredis";
import type { Logger } from "../core/logger.ts";
import type { StoreEvent } from "../core/store-events.ts";
import { createBreaker, type Breaker, type BreakerOptions } from "./breaker.ts";
import { serverNames } from "./server-name.ts";
import { withinMs } from "./within.ts";

/** A server's breaker, and what the server is called. */
export interface ServerBreaker extends Breaker {
  readonly server: string;
}

/** The breakers of one store: one for its server; of a cluster, one for each node that holds buckets. */
export interface Breakers {
  /** That of the server which holds this bucket now. */
  of(bucket: string): ServerBreaker;
  close(): void;
}

export interface BreakersOptions {
  readonly breaker: BreakerOptions;
  readonly logger: Logger;
  readonly onChange: (event: StoreEvent) => void;
  /** How long a probe may take. */
  readonly timeoutMs: number;
  /** A key of this bucket, to probe with. */
  readonly keyOf: (bucket: string) => string;
}

export function createBreakers(redis: Redis | Cluster, options: BreakersOptions): Breakers {
  const { logger, onChange, keyOf, timeoutMs } = options;
  const serverOf = serverNames(redis);
  const found = new Map<string, ServerBreaker>();

  function create(server: string, bucket: string): ServerBreaker {
    const breaker = createBreaker(options.breaker, {
      // It fails at once while there is no connection.
      probe: () => withinMs(timeoutMs, redis.exists(keyOf(bucket)), () => new Error("no answer")),
      onChange(state) {
        const news = state === "up" ? "answers again" : "does not answer, and is asked no more";
        logger.warn({ server, state }, `Redis at ${server} ${news}.`);
        if (state === "down") reconnect(redis);
        onChange({ state, server });
      },
    });
    return Object.assign(breaker, { server });
  }

  redis.on("ready", () => {
    for (const breaker of found.values()) breaker.ready();
  });

  return {
    of(bucket) {
      const server = serverOf(bucket);
      let breaker = found.get(server);
      if (breaker === undefined) {
        breaker = create(server, bucket);
        found.set(server, breaker);
      }
      return breaker;
    },
    close() {
      for (const breaker of found.values()) breaker.close();
    },
  };
}

/**
 * One that answers again before its connection was given up would be found by a probe alone, half a minute
 * later; a new connection, once it is ready, is a reason to probe at once. A cluster looks after its own.
 */
function reconnect(redis: Redis | Cluster): void {
  if (!redis.isCluster && redis.status === "ready") (redis as Redis).disconnect(true);
}
