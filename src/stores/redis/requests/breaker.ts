/**
 * Circuit breakers for Redis servers. If a server does not reply or refuses requests, it receives
 * only probes until a probe succeeds. Each server has its own breaker, so a cluster continues with
 * its healthy nodes.
 */

import slotOf from "cluster-key-slot";
import type { Cluster, Redis } from "ioredis";
import { messageOf } from "../../../core/describe.ts";
import { isReply } from "../../../core/errors.ts";
import type { StoreEvent } from "../../../core/events/events.ts";
import type { Logger } from "../../../core/logger.ts";
import { isCluster } from "../connection.ts";
import { lastErrorOf } from "../ioredis/readiness.ts";
import { withTimeout } from "../ioredis/time-limit.ts";

/** Decides when a breaker opens, and how often it probes. */
export interface BreakerOptions {
  /**
   * The number of failures in a row after which the server gets no more requests. Defaults to 3.
   */
  readonly failures?: number | undefined;
  /**
   * The time between two probes of an unreachable server. A random part varies it by up to a
   * quarter. Defaults to 30,000 ms.
   */
  readonly probeMs?: number | undefined;
}

/**
 * The breaker of one server.
 *
 * - closed: requests pass. After `failures` failures in a row, the breaker opens.
 * - open: requests fail immediately. A probe is sent every `probeMs`, and when a connection becomes
 *   ready again. If the server refused requests, the first probe follows after a second, and later
 *   probes less and less often. Such a server is reachable, and may accept requests at any time.
 * - probing: requests fail immediately. The breaker closes if the probe succeeds, and opens again
 *   if it fails.
 *
 * After a probe has closed the breaker, the first failure opens it again.
 */
export interface Breaker {
  readonly isOpen: boolean;
  /** The server's error reply to the last failed request. Undefined if there was no reply. */
  readonly refusal: Error | undefined;
  /** Call this after a request got its reply in time. */
  succeed(): void;
  /**
   * Call this after a request failed: it timed out, lost its connection, or was refused on every attempt. `sentAtMs` is when
   * the request was sent, on `performance.now()`.
   */
  fail(sentAtMs: number, refusal?: Error): void;
  /** Call this when a connection is ready again. The breaker then probes at once. */
  ready(): void;
  /** Ends the probes. */
  close(): void;
}

type BreakerState =
  | { readonly is: "closed"; readonly failures: number }
  | { readonly is: "open"; readonly timer: NodeJS.Timeout }
  | { readonly is: "probing" }
  | { readonly is: "ended" };

const FAILURES = 3;
const PROBE_MS = 30_000;
const REFUSED_PROBE_MS = 1_000;
/**
 * The random share of the probe interval. It spreads the probes of replicas that lost Redis at the
 * same moment.
 */
const JITTER = 0.25;

export function createBreaker(
  { failures: most = FAILURES, probeMs = PROBE_MS }: BreakerOptions,
  parts: {
    /**
     * Sends a probe: a write that changes nothing. A read would not be enough, because a server may
     * refuse writes but reply to reads. Rejects after a timeout.
     */
    readonly probe: () => Promise<unknown>;
    readonly onChange: (state: "up" | "down") => void;
  },
): Breaker {
  let state: BreakerState = { is: "closed", failures: 0 };
  /**
   * When the last request failed. Requests that were sent before do not count as further failures.
   */
  let failedAtMs = -Infinity;
  /**
   * True if a request succeeded after the last probe. If false, a ready connection alone triggers
   * no probe.
   */
  let isProven = true;
  let refusal: Error | undefined;
  /** The number of probes of a refusing server since the last successful request. */
  let refusedProbes = 0;

  function open(): void {
    const refusedMs = REFUSED_PROBE_MS * 2 ** refusedProbes;
    const everyMs = refusal === undefined ? probeMs : Math.min(probeMs, refusedMs);
    const delayMs = everyMs * (1 - JITTER + 2 * JITTER * Math.random());
    const timer = setTimeout(() => void probe(), delayMs);
    timer.unref();
    state = { is: "open", timer };
  }

  async function probe(): Promise<void> {
    state = { is: "probing" };
    if (refusal !== undefined) refusedProbes += 1;
    const isAnswered = await parts.probe().then(
      () => true,
      (error: unknown) => {
        refusal = isReply(error) ? error : undefined;
        return false;
      },
    );
    if (state.is !== "probing") return;
    if (!isAnswered) return open();
    state = { is: "closed", failures: most - 1 };
    isProven = false;
    parts.onChange("up");
  }

  return {
    get isOpen() {
      return state.is === "open" || state.is === "probing";
    },
    get refusal() {
      return refusal;
    },
    succeed() {
      isProven = true;
      refusedProbes = 0;
      if (state.is === "closed" && state.failures > 0) state = { is: "closed", failures: 0 };
    },
    fail(sentAtMs, refused) {
      if (state.is !== "closed" || sentAtMs < failedAtMs) return;
      failedAtMs = performance.now();
      refusal = refused;
      const failures = state.failures + 1;
      if (failures < most) {
        state = { is: "closed", failures };
        return;
      }
      open();
      parts.onChange("down");
    },
    ready() {
      if (state.is !== "open" || !isProven) return;
      clearTimeout(state.timer);
      void probe();
    },
    close() {
      if (state.is === "open") clearTimeout(state.timer);
      state = { is: "ended" };
    },
  };
}

export interface ServerBreaker extends Breaker {
  /** The server's name in logs, events and errors. */
  readonly server: string;
}

/**
 * The breakers of one store. A single server has one breaker. A cluster has one breaker for each
 * node that stores buckets.
 */
export interface Breakers {
  /** Returns the breaker of the server that stores this bucket now. */
  of(bucket: string): ServerBreaker;
  close(): void;
}

export interface BreakersOptions {
  readonly breaker: BreakerOptions;
  readonly logger: Logger;
  readonly onChange: (event: StoreEvent) => void;
  /** The time limit for a probe. */
  readonly timeoutMs: number;
  /** Returns a Redis key of this bucket for the probe. */
  readonly keyOf: (bucket: string) => string;
}

export function createBreakers(redis: Redis | Cluster, options: BreakersOptions): Breakers {
  const { logger, onChange, keyOf, timeoutMs } = options;
  const serverOf = serverNames(redis);
  const lastError = lastErrorOf(redis);
  const breakers = new Map<string, ServerBreaker>();

  function create(server: string, bucket: string): ServerBreaker {
    const breaker = createBreaker(options.breaker, {
      // Deletes a key that never exists. Without a connection, this fails immediately. A server
      // with full memory still accepts a DEL.
      probe: () =>
        withTimeout(timeoutMs, redis.del(`${keyOf(bucket)}:probe`), () => new Error("no answer")),
      onChange(state) {
        const { refusal } = breaker;
        const met = state === "down" ? (refusal ?? lastError()) : undefined;
        const reason = met && messageOf(met);
        const why = reason === undefined ? "" : `: ${reason}`;
        const failed = refusal === undefined ? "has failed repeatedly" : "refuses requests";
        const event =
          state === "up"
            ? "answers again"
            : `${failed}; only probes are sent until one succeeds${why}`;
        logger.warn({ server, state }, `Redis at ${server} ${event}.`);
        if (state === "down" && refusal === undefined) reconnect(connectionTo(redis, server));
        onChange({ state, server, reason });
      },
    });
    return Object.defineProperty(breaker, "server", { value: server }) as ServerBreaker;
  }

  redis.on("ready", () => {
    for (const breaker of breakers.values()) breaker.ready();
  });
  // In a cluster, ioredis replaces a lost connection to a node when it next refreshes its list of
  // nodes.
  redis.on("+node", (node: Redis) => {
    const breakerOf = (): Breaker | undefined => breakers.get(nodeName(node));
    node.on("ready", () => breakerOf()?.ready());
    // Connects now. Otherwise the node would connect only for its first command, and the open
    // breaker blocks all commands.
    if (breakerOf()?.isOpen === true) reconnect(node);
  });

  return {
    of(bucket) {
      const server = serverOf(bucket);
      let breaker = breakers.get(server);
      if (breaker === undefined) {
        breaker = create(server, bucket);
        breakers.set(server, breaker);
      }
      return breaker;
    },
    close() {
      for (const breaker of breakers.values()) breaker.close();
    },
  };
}

/**
 * Returns the connection to a server. Undefined if the cluster's client does not know the node yet,
 * or any more.
 */
function connectionTo(redis: Redis | Cluster, server: string): Redis | undefined {
  if (!redis.isCluster) return redis as Redis;
  return (redis as Cluster).nodes().find((node) => nodeName(node) === server);
}

/**
 * Opens a new connection. When it becomes ready, the breaker probes immediately. On the old
 * connection, only the next regular probe would find that the server replies again, up to half a
 * minute later.
 */
function reconnect(connection: Redis | undefined): void {
  if (connection?.status === "ready") connection.disconnect(true);
  if (connection?.status === "wait") connection.connect().catch(() => undefined);
}

/**
 * Returns a function that names a bucket's server in logs and events. The name is the server's
 * address without user and password.
 */
export function serverNames(redis: Redis | Cluster): (bucket: string) => string {
  if (isCluster(redis)) return (bucket) => redis.slots[slotOf(bucket)]?.[0] ?? "cluster";
  const name = nameOf(redis);
  return () => name;
}

/** Returns the name of a cluster node from the connection to it. */
function nodeName({ options: { host, port } }: Redis): string {
  return `${host}:${port}`;
}

export function nameOf({ options }: Redis): string {
  const { host = "localhost", port = 6379, path, db = 0, sentinels, name } = options;
  const database = db === 0 ? "" : `/${db}`;
  if (sentinels !== undefined && sentinels !== null) return `${name ?? "sentinel"}${database}`;
  if (typeof path === "string") return `${path}${database}`;
  return `${host.includes(":") ? `[${host}]` : host}:${port}${database}`;
}
