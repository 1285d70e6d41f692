import type { Cluster, Redis } from "ioredis";
import type { Wake } from "../core/store.ts";
import { changesChannel } from "./scripts/bucket.ts";
import { wakeChannel } from "./scripts/leases.ts";

/** Hears what is published to some channels, for as long as it is not closed. */
interface Listener {
  subscribe(channel: string): void;
  close(): void;
}

const RETRY_MS = 500;
/** How often it is looked whether all channels are still heard; so long may an answer take. */
const LOOK_MS = 5_000;

/**
 * ioredis subscribes anew after each reconnect, but forgets what Redis refuses then, or what was sent while it asked
 * whether the server is ready; and the connection on which a client of a cluster listens may be dead, or none. So it
 * is subscribed again whenever it is ready, and all the time after that, which changes nothing where all is well, and
 * a connection on which that is refused or not answered is replaced.
 */
function createListener(
  connect: () => Redis | Cluster,
  onMessage: (channel: string, message: string) => void,
): Listener {
  const channels = new Set<string>();
  let looking: NodeJS.Timeout | undefined;
  let redis: Redis | Cluster | undefined;
  let isAnswered = true;
  let isClosed = false;

  function open(): Redis | Cluster {
    const opened = connect();
    opened.on("message", (channel: string, message: string) => {
      if (opened === redis) onMessage(channel, message);
    });
    opened.on("ready", () => {
      // A refusal is seen at the next look: to replace the connection at once could go on without end.
      if (opened === redis) opened.subscribe(...channels).catch(() => undefined);
    });
    isAnswered = true;
    looking ??= setInterval(look, LOOK_MS).unref();
    return opened;
  }

  /** A first time that fails, as when a node of a cluster is away, is tried again before the next look. */
  function subscribe(asked: Redis | Cluster, channel: string): void {
    asked.subscribe(channel).catch(() => {
      setTimeout(() => {
        if (asked === redis) subscribe(asked, channel);
      }, RETRY_MS).unref();
    });
  }

  function look(): void {
    // Else ioredis is about to connect.
    if (redis?.status !== "ready") return;
    const asked = redis;
    if (!isAnswered) return replace(asked);
    isAnswered = false;
    asked.subscribe(...channels).then(
      () => {
        if (asked === redis) isAnswered = true;
      },
      () => replace(asked),
    );
  }

  function replace(asked: Redis | Cluster): void {
    if (asked !== redis) return;
    const opened = open();
    redis = opened;
    for (const channel of channels) subscribe(opened, channel);
    asked.disconnect();
  }

  return {
    subscribe(channel) {
      if (isClosed) return;
      channels.add(channel);
      redis ??= open();
      subscribe(redis, channel);
    },
    close() {
      isClosed = true;
      clearInterval(looking);
      redis?.disconnect();
      redis = undefined;
    },
  };
}

/** What askers hear from Redis: that a lease is free for them, or that something of a bucket has changed. */
export interface WakeCalls {
  listen(asker: string, wake: Wake): void;
  close(): void;
}

/** A message that gets lost costs half a second: those who wait look in by themselves. */
export function createWakeCalls(connect: () => Redis | Cluster, prefix: string): WakeCalls {
  const wakes = new Map<string, Wake>();
  const changes = changesChannel(prefix);
  const listener = createListener(connect, (channel, message) => {
    const [bucket = "", key] = message.split("\n");
    if (channel !== changes) return wakes.get(channel)?.(bucket, "lease", key);
    for (const each of wakes.values()) each(bucket, "change", key);
  });

  return {
    listen(asker, wake) {
      const channel = wakeChannel(prefix, asker);
      if (wakes.size === 0) listener.subscribe(changes);
      wakes.set(channel, wake);
      listener.subscribe(channel);
    },
    close() {
      listener.close();
      wakes.clear();
    },
  };
}
