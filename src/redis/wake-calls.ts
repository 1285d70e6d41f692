import type { Cluster, Redis } from "ioredis";
import type { Wake } from "../core/store.ts";
import { changesChannel } from "./scripts/bucket-steer.ts";
import { wakeChannel } from "./scripts/leases.ts";

/** What askers hear from Redis: that a lease is free for them, or that something of a bucket has changed. */
export interface WakeCalls {
  listen(asker: string, wake: Wake): void;
  close(): void;
}

const RETRY_MS = 500;

/** A message that gets lost costs half a second: those who wait look in by themselves. */
export function createWakeCalls(connect: () => Redis | Cluster, prefix: string): WakeCalls {
  const wakes = new Map<string, Wake>();
  let listener: Redis | Cluster | undefined;
  let isClosed = false;

  /** ioredis subscribes again after each reconnect; a first time that fails, as when a node of a cluster is away, is ours. */
  function subscribe(redis: Redis | Cluster, channel: string): void {
    redis.subscribe(channel).catch(() => {
      if (!isClosed) setTimeout(() => subscribe(redis, channel), RETRY_MS).unref();
    });
  }

  return {
    listen(asker, wake) {
      wakes.set(wakeChannel(prefix, asker), wake);
      if (listener === undefined) {
        listener = connect();
        listener.on("message", (channel: string, message: string) => {
          if (channel !== changesChannel(prefix)) {
            return wakes.get(channel)?.(message, "lease", undefined);
          }
          const [bucket = "", key] = message.split("\n");
          for (const each of wakes.values()) each(bucket, "change", key);
        });
        subscribe(listener, changesChannel(prefix));
      }
      subscribe(listener, wakeChannel(prefix, asker));
    },
    close() {
      isClosed = true;
      listener?.disconnect();
      wakes.clear();
    },
  };
}
