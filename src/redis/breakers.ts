import type { Cluster, Redis } from "ioredis";
import { wordsOf } from "../core/describe.ts";
import type { StoreEvent } from "../core/events.ts";
import type { Logger } from "../core/logger.ts";
import { createBreaker, type Breaker, type BreakerOptions } from "./breaker.ts";
import { lastErrorOf } from "./last-error.ts";
import { nodeName, serverNames } from "./server-name.ts";
import { withinMs } from "./time-limit.ts";

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
  const lastError = lastErrorOf(redis);
  const found = new Map<string, ServerBreaker>();

  function create(server: string, bucket: string): ServerBreaker {
    const breaker = createBreaker(options.breaker, {
      // It fails at once while there is no connection.
      probe: () => withinMs(timeoutMs, redis.exists(keyOf(bucket)), () => new Error("no answer")),
      onChange(state) {
        const met = state === "down" ? lastError() : undefined;
        const reason = met && wordsOf(met);
        const why = reason === undefined ? "" : `: ${reason}`;
        const news =
          state === "up"
            ? "answers again"
            : `has failed again and again, and is only probed until it answers${why}`;
        logger.warn({ server, state }, `Redis at ${server} ${news}.`);
        if (state === "down") reconnect(connectionTo(redis, server));
        onChange({ state, server, reason });
      },
    });
    return Object.assign(breaker, { server });
  }

  redis.on("ready", () => {
    for (const breaker of found.values()) breaker.ready();
  });
  // Of a cluster: a node whose connection was lost is another one when the client next looks who serves what.
  redis.on("+node", (node: Redis) => {
    const breakerOf = (): Breaker | undefined => found.get(nodeName(node));
    node.on("ready", () => breakerOf()?.ready());
    // It would connect when it is first asked.
    if (breakerOf()?.isOpen === true) reconnect(node);
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

/** None to a cluster's node that the client does not know, or not yet. */
function connectionTo(redis: Redis | Cluster, server: string): Redis | undefined {
  if (!redis.isCluster) return redis as Redis;
  return (redis as Cluster).nodes().find((node) => nodeName(node) === server);
}

/**
 * One that answers again before its connection was given up would be found by a probe alone, half a minute
 * later; a new connection, once it is ready, is a reason to probe at once.
 */
function reconnect(connection: Redis | undefined): void {
  if (connection?.status === "ready") connection.disconnect(true);
  if (connection?.status === "wait") connection.connect().catch(() => undefined);
}
