import slotOf from "cluster-key-slot";
import type { Cluster, Redis } from "ioredis";
import { wordsOf } from "../core/describe.ts";
import type { StoreEvent } from "../core/events.ts";
import type { Logger } from "../core/logger.ts";
import { isCluster } from "./connection.ts";
import { lastErrorOf, withinMs } from "./ioredis/readiness.ts";

/** When a breaker opens, and how often it probes. */
export interface BreakerOptions {
  /** After so many failures in a row the server is asked no more. Defaults to 3. */
  readonly failures?: number | undefined;
  /** How often one probe is let through then, give or take a quarter. Defaults to 30,000 ms. */
  readonly probeMs?: number | undefined;
}

/**
 * Keeps a server from being asked that does not answer.
 *
 * closed: questions pass; so many failures in a row open it.
 * open: questions fail at once. A probe goes out from time to time, and as soon as a connection is ready again.
 * probing: questions fail at once; the probe's answer closes it, its failure opens it anew.
 *
 * After a probe alone it is on trial: the first failure opens it again.
 */
export interface Breaker {
  readonly isOpen: boolean;
  /** A question was answered in time. */
  succeed(): void;
  /** A question that was asked at `askedAtMs` of `performance.now()` was not: a time-out, or a lost connection. */
  fail(askedAtMs: number): void;
  /** A connection is ready again: a reason to probe at once. */
  ready(): void;
  /** Probes no more. */
  close(): void;
}

type State =
  | { readonly is: "closed"; readonly failures: number }
  | { readonly is: "open"; readonly timer: NodeJS.Timeout }
  | { readonly is: "probing" }
  | { readonly is: "ended" };

const FAILURES = 3;
const PROBE_MS = 30_000;
/** Replicas that lost Redis at one moment are not to come back at one moment. */
const JITTER = 0.25;

export function createBreaker(
  { failures: most = FAILURES, probeMs = PROBE_MS }: BreakerOptions,
  parts: {
    /** Asks the server for what costs it nothing; rejects in time. */
    readonly probe: () => Promise<unknown>;
    readonly onChange: (state: "up" | "down") => void;
  },
): Breaker {
  let state: State = { is: "closed", failures: 0 };
  /** What failed together counts once: questions that were under way at a failure tell no more of it. */
  let failedAtMs = -Infinity;
  /** Whether a question was answered since it closed: else a connection alone is no reason to probe again. */
  let isProven = true;

  function open(): void {
    const delayMs = probeMs * (1 - JITTER + 2 * JITTER * Math.random());
    const timer = setTimeout(() => void probe(), delayMs);
    timer.unref();
    state = { is: "open", timer };
  }

  async function probe(): Promise<void> {
    state = { is: "probing" };
    const isAnswered = await parts.probe().then(
      () => true,
      () => false,
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
    succeed() {
      isProven = true;
      if (state.is === "closed" && state.failures > 0) state = { is: "closed", failures: 0 };
    },
    fail(askedAtMs) {
      if (state.is !== "closed" || askedAtMs < failedAtMs) return;
      failedAtMs = performance.now();
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

/** Tells what the server of a bucket is called in logs and events: where it is, never with a user or password. */
export function serverNames(redis: Redis | Cluster): (bucket: string) => string {
  if (isCluster(redis)) return (bucket) => redis.slots[slotOf(bucket)]?.[0] ?? "cluster";
  const name = nameOf(redis);
  return () => name;
}

/** The same name, from the connection to a node of a cluster. */
function nodeName({ options: { host, port } }: Redis): string {
  return `${host}:${port}`;
}

function nameOf({ options }: Redis): string {
  const { host = "localhost", port = 6379, path, db = 0, sentinels, name } = options;
  const database = db === 0 ? "" : `/${db}`;
  if (sentinels !== undefined && sentinels !== null) return `${name ?? "sentinel"}${database}`;
  if (typeof path === "string") return `${path}${database}`;
  return `${host.includes(":") ? `[${host}]` : host}:${port}${database}`;
}
