/**
 * Circuit breakers for Redis servers. A server that does not reply or refuses requests gets only probes until one succeeds.
 * Each server has its own breaker, so a cluster continues with its healthy nodes.
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
  /** After this many failures in a row, the server gets no more requests. Defaults to 3. */
  readonly failures?: number | undefined;
  /** The time between two probes of such a server, varied at random by up to a quarter. Defaults to 30,000 ms. */
  readonly probeMs?: number | undefined;
}

/**
 * The breaker of one server.
 *
 * - closed: requests pass; `failures` failures in a row open it.
 * - open: requests fail at once. A probe is sent every `probeMs`, and as soon as a connection is ready again. A server
 *   that refused is probed after a second, then less and less often: it is there, and may take requests at any time.
 * - probing: requests fail at once; the probe's answer closes the breaker, its failure opens it again.
 *
 * After it was closed by a probe, the first failure opens it again.
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
/** Spreads the probes of replicas that lost Redis at the same moment. */
const JITTER = 0.25;

export function createBreaker(
  { failures: most = FAILURES, probeMs = PROBE_MS }: BreakerOptions,
  parts: {
    /** Sends a write that changes nothing, because a server may refuse writes but reply to reads. Rejects after a timeout. */
    readonly probe: () => Promise<unknown>;
    readonly onChange: (state: "up" | "down") => void;
  },
): Breaker {
  let state: BreakerState = { is: "closed", failures: 0 };
  /** Requests sent before the last failure do not count as further failures. */
  let failedAtMs = -Infinity;
  /** True if a request succeeded after the last probe. If not, a ready connection alone triggers no probe. */
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

/** The breakers of one store: one for its server; in a cluster, one for each node that holds buckets. */
export interface Breakers {
  /** The breaker of the server that holds this bucket now. */
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
  const breakers = new Map<string, ServerBreaker>();

  function create(server: string, bucket: string): ServerBreaker {
    const breaker = createBreaker(options.breaker, {
      // Fails at once without a connection. No key has this name. A server with full memory accepts a DEL.
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
  // In a cluster, a lost connection to a node is replaced when the client next asks which node serves what.
  redis.on("+node", (node: Redis) => {
    const breakerOf = (): Breaker | undefined => breakers.get(nodeName(node));
    node.on("ready", () => breakerOf()?.ready());
    // Without this, it would connect for its first command, which the breaker keeps away.
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

/** Undefined for a node that the cluster's client does not know, or not yet. */
function connectionTo(redis: Redis | Cluster, server: string): Redis | undefined {
  if (!redis.isCluster) return redis as Redis;
  return (redis as Cluster).nodes().find((node) => nodeName(node) === server);
}

/**
 * Opens a new connection, because the breaker probes at once when a connection becomes ready. On the old connection, only the
 * next regular probe would find out, up to half a minute later, that the server replies again.
 */
function reconnect(connection: Redis | undefined): void {
  if (connection?.status === "ready") connection.disconnect(true);
  if (connection?.status === "wait") connection.connect().catch(() => undefined);
}

/** The function that names a bucket's server in logs and events: its address, without user and password. */
export function serverNames(redis: Redis | Cluster): (bucket: string) => string {
  if (isCluster(redis)) return (bucket) => redis.slots[slotOf(bucket)]?.[0] ?? "cluster";
  const name = nameOf(redis);
  return () => name;
}

/** The name of a cluster's node, from the connection to it. */
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
