/**
 * Waits for a connection to become ready, and explains why it does not.
 *
 * This file works around two problems of ioredis (no upstream issue known; checked with ioredis
 * 5.11.1). While a connection closes, ioredis keeps the status "ready" and rejects commands until
 * the socket has closed. Also, ioredis' own commands on a closing connection fail with an error
 * that does not name the cause.
 */

import type { Cluster, Redis, RedisOptions } from "ioredis";
import { startTimeLimit } from "./time-limit.ts";

/**
 * Waits until commands can be sent. Connects a client that is not connected yet.
 *
 * @throws the last error of the connection after `timeoutMs`, or an error immediately if the client
 * was closed.
 */
export async function untilReady(redis: Redis | Cluster, timeoutMs: number): Promise<void> {
  if (redis.status === "ready" && !isClosing(redis)) return;
  if (redis.status === "end") throw new Error("the connection was closed");
  // Errors are ignored here, because ioredis retries a failed connection. The events below show the
  // outcome.
  if (redis.status === "wait") redis.connect().catch(() => undefined);
  await new Promise<void>((resolve, reject) => {
    let lastError = explainError(redis);
    const onError = (error: Error): void => {
      if (isInformative(error)) lastError = explainError(redis, error);
    };
    const onReady = (): void => settle(resolve);
    const onEnd = (): void => settle(() => reject(new Error("the connection was closed")));
    const stopLimit = startTimeLimit(timeoutMs, () => settle(() => reject(lastError)));
    function settle(outcome: () => void): void {
      stopLimit();
      redis.off("error", onError).off("ready", onReady).off("end", onEnd);
      outcome();
    }
    redis.on("error", onError).on("ready", onReady).on("end", onEnd);
  });
}

function isClosing(redis: Redis | Cluster): boolean {
  return "stream" in redis && !redis.stream.writable;
}

/**
 * Returns a function that returns the last error since the connection was last ready. ioredis emits
 * one error for each failed attempt.
 */
export function lastErrorOf(redis: Redis | Cluster): () => Error | undefined {
  let last: Error | undefined;
  redis.on("error", (error: Error) => {
    if (isInformative(error)) last = explainError(redis, error);
  });
  redis.on("ready", () => {
    last = undefined;
  });
  return () => last;
}

/**
 * Returns false for errors of ioredis' own commands on a closing connection, which do not name the
 * cause.
 */
function isInformative({ message }: Error): boolean {
  return !message.startsWith("Stream isn't writeable");
}

/**
 * Returns a clearer error for a failed connection. An undefined `met` means that no connection was
 * made in time.
 */
export function explainError(redis: Redis | Cluster, met?: Error): Error {
  if (met !== undefined && met.message !== CONNECT_TIMED_OUT) return met;
  // A server without TLS reads the handshake as an unfinished command and sends no reply.
  if (usesTls(redis)) return new Error("no TLS connection in time: does the server speak TLS?");
  return met ?? new Error("no connection in time");
}

/** The message of ioredis' error after its `connectTimeout`. */
const CONNECT_TIMED_OUT = "connect ETIMEDOUT";

function usesTls({ options }: Redis | Cluster): boolean {
  const own = "redisOptions" in options ? options.redisOptions : (options as RedisOptions);
  return own?.tls !== undefined;
}
