/** What replicas publish to each other: a lease is free for an asker, or something of a bucket has changed. */
import type { Cluster, Redis } from "ioredis";
import type { Wake } from "../../core/store.ts";
import { restWhile } from "./ioredis/silent-servers.ts";
import { changesChannel } from "./scripts/bucket/bucket.ts";
import { wakeChannel } from "./scripts/bucket/leases.ts";

/** Messages from Redis for the askers of one process. */
export interface Notifications {
  /** Calls `wake` with each message for this asker, and with each change, until closed. */
  listen(asker: string, wake: Wake): void;
  /** Called at each draw: while there are none, the subscriptions are checked seldom. */
  used(): void;
  close(): void;
}

const RETRY_MS = 500;
/** How often the subscriptions are checked; an answer may take as long. */
const CHECK_MS = 5_000;
/** At rest, only one in this many checks is made: no caller waits for a message then. */
const CHECKS_AT_REST = 6;
const PING_AT_REST_MS = 20_000;

/**
 * Subscribes to the channels of askers, on one connection that `connect` makes when the first asker listens. A lost
 * message delays an asker by half a second: callers that wait ask again by themselves.
 *
 * ioredis subscribes again after each reconnect, but forgets what Redis refuses then, and what was sent while it asked
 * whether the server is ready; and the connection on which a cluster's client is subscribed may be dead, or missing.
 * So all channels are subscribed to again whenever the connection is ready, and every {@link CHECK_MS} in which somebody
 * draws, which changes nothing where all is well. A connection on which that is refused or not answered is replaced.
 */
export function createNotifications(connect: () => Redis | Cluster, prefix: string): Notifications {
  const changes = changesChannel(prefix);
  /** By channel. */
  const wakes = new Map<string, Wake>();
  let redis: Redis | Cluster | undefined;
  let checking: NodeJS.Timeout | undefined;
  let isAnswered = true;
  let isClosed = false;
  let isUsed = false;
  /** Whether no caller has drawn for a while, and how many checks in a row were skipped since. */
  let isResting = false;
  let leftOut = 0;

  function channels(): string[] {
    return [changes, ...wakes.keys()];
  }

  function deliver(channel: string, message: string): void {
    const [bucket = "", key] = message.split("\n");
    if (channel !== changes) return wakes.get(channel)?.(bucket, "lease", key);
    for (const wake of wakes.values()) wake(bucket, "change", key);
  }

  function open(): Redis | Cluster {
    const opened = connect();
    opened.on("message", (channel: string, message: string) => {
      if (opened === redis) deliver(channel, message);
    });
    opened.on("ready", () => {
      // The next check finds a refusal: to replace the connection at once could go on without end.
      if (opened === redis) opened.subscribe(...channels()).catch(() => undefined);
    });
    isAnswered = true;
    restWhile(opened, { mayRest: () => isResting, pingAfterMs: PING_AT_REST_MS });
    checking ??= setInterval(checkIfUsed, CHECK_MS).unref();
    return opened;
  }

  /**
   * Subscribes. Repeats a failed attempt before the next check, for example when a node of a
   * cluster is unreachable.
   */
  function subscribe(on: Redis | Cluster, channel: string): void {
    on.subscribe(channel).catch(() => {
      setTimeout(() => {
        if (on === redis) subscribe(on, channel);
      }, RETRY_MS).unref();
    });
  }

  function checkIfUsed(): void {
    isResting = !isUsed && isAnswered;
    isUsed = false;
    leftOut = isResting ? (leftOut + 1) % CHECKS_AT_REST : 0;
    if (leftOut === 0) check();
  }

  function check(): void {
    // In any other state ioredis is about to connect.
    if (redis?.status !== "ready") return;
    const checked = redis;
    if (!isAnswered) return replace(checked);
    isAnswered = false;
    checked.subscribe(...channels()).then(
      () => {
        if (checked === redis) isAnswered = true;
      },
      () => replace(checked),
    );
  }

  function replace(old: Redis | Cluster): void {
    if (old !== redis) return;
    const opened = open();
    redis = opened;
    for (const channel of channels()) subscribe(opened, channel);
    old.disconnect();
  }

  return {
    listen(asker, wake) {
      if (isClosed) return;
      const channel = wakeChannel(prefix, asker);
      const isFirst = wakes.size === 0;
      wakes.set(channel, wake);
      redis ??= open();
      if (isFirst) subscribe(redis, changes);
      subscribe(redis, channel);
    },
    used() {
      isUsed = true;
      // A connection that was not checked during the rest may have lost messages.
      if (isResting) check();
      isResting = false;
    },
    close() {
      isClosed = true;
      clearInterval(checking);
      redis?.disconnect();
      redis = undefined;
      wakes.clear();
    },
  };
}
