import type { Cluster, Redis } from "ioredis";
import { withoutPasswords } from "../core/describe-value.ts";

/** What a connection has met since it was last ready, if anything: ioredis tells it with each attempt that fails. */
export function lastErrorOf(redis: Redis | Cluster): () => Error | undefined {
  let last: Error | undefined;
  redis.on("error", (error: Error) => {
    if (tellsWhy(error)) last = error;
  });
  redis.on("ready", () => {
    last = undefined;
  });
  return () => last;
}

/** Not the refusal of what ioredis itself asks while a connection goes away. */
export function tellsWhy({ message }: Error): boolean {
  return !message.startsWith("Stream isn't writeable");
}

/** In its own words: `"connect ECONNREFUSED 127.0.0.1:6379"`, `"WRONGPASS invalid username-password pair"`. */
export function wordsOf(error: Error): string {
  // Where a name has several addresses, the error of all of them has a code and no message.
  const { code } = error as NodeJS.ErrnoException;
  return withoutPasswords(error.message || code || error.name);
}
