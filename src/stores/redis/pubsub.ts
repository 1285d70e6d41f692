/**
 * The messages that replicas publish to each other: a lease became free for a replica, or a bucket
 * changed.
 */
import type { Cluster, Redis } from "ioredis";
import type { Wake } from "../../core/store.ts";
import { restWhile } from "./ioredis/silent-servers.ts";
import { changesChannel } from "./scripts/bucket/bucket.ts";
import { wakeChannel } from "./scripts/bucket/leases.ts";

/** Receives Redis messages for the replicas of one process. */
export interface Notifications {
  /**
   * Calls `wake` for each message to this replica, and for each change of a bucket, until `close`
   * is called.
   */
  listen(replica: string, wake: Wake): void;
  /** Call this at each draw. Without draws, the subscriptions are checked less often. */
  used(): void;
  close(): void;
}

const RETRY_MS = 500;
/**
 * The interval between checks of the subscriptions, and the time limit for Redis's reply to a
 * check.
 */
const CHECK_MS = 5_000;
/** At rest, only one of six checks is made, because no caller waits for a message then. */
const CHECKS_AT_REST = 6;
const PING_AT_REST_MS = 20_000;

/**
 * Subscribes to the channels of replicas on one connection. `connect` opens that connection when the
 * first replica listens. A lost message delays a replica by half a second, because waiting callers
 * send a request again by themselves.
 *
 * ioredis subscribes again after each reconnect, but not reliably. It drops subscriptions that
 * Redis refuses at that time, and those that were sent while it checked whether the server is
 * ready. In a cluster, the connection with the subscriptions may also be dead or missing. Therefore
 * all channels are subscribed again whenever the connection becomes ready. While callers draw, this
 * is repeated every {@link CHECK_MS}, which changes nothing if the subscriptions are intact. If
 * Redis refuses the subscription or does not reply, the connection is replaced.
 */
export function createNotifications(connect: () => Redis | Cluster, prefix: string): Notifications {
  const changes = changesChannel(prefix);
  /** The callback of each replica, by channel. */
  const wakes = new Map<string, Wake>();
  let redis: Redis | Cluster | undefined;
  let checking: NodeJS.Timeout | undefined;
  let isAnswered = true;
  let isClosed = false;
  let isUsed = false;
  /**
   * `isResting` is true if no caller has drawn for a while. `leftOut` is the number of checks in a
   * row that were skipped at rest.
   */
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
      // A refusal is left to the next check, because replacing the connection immediately could
      // loop forever.
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
    // Only a ready connection is checked. In any other state, ioredis is about to connect.
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
    listen(replica, wake) {
      if (isClosed) return;
      const channel = wakeChannel(prefix, replica);
      const isFirst = wakes.size === 0;
      wakes.set(channel, wake);
      redis ??= open();
      if (isFirst) subscribe(redis, changes);
      subscribe(redis, channel);
    },
    used() {
      isUsed = true;
      // Checks immediately after a rest, because messages may have been lost during the rest.
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
