import type { Cluster, Redis } from "ioredis";
import type { Wake } from "../core/store.ts";
import { createListener } from "./listener.ts";
import { changesChannel } from "./scripts/bucket-steer.ts";
import { wakeChannel } from "./scripts/leases.ts";

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
