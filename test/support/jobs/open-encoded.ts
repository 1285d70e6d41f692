import { randomBytes } from "node:crypto";
import { Redis } from "ioredis";
import { inject } from "vitest";
import type { Codec, Queue, QueueOptions, Sluice, SluiceOptions } from "sluice";
import { everythingOf } from "../redis/everything.ts";
import type { RealSluices } from "../setup/real-sluice.ts";

export const newKey = (): string => randomBytes(32).toString("base64");

/** A queue of objects with a codec, in a replica of its own. */
export function openEncoded<Result = unknown>(
  sluices: RealSluices,
  codec: Codec | readonly Codec[] | undefined,
  { logger, ...options }: Partial<QueueOptions<object>> & Pick<SluiceOptions, "logger"> = {},
): { readonly sluice: Sluice; readonly queue: Queue<object, Result> } {
  const sluice = sluices.open({ logger });
  const bucket = sluice.bucket("downstream", { rate: "1000/s" });
  const queue = sluice.queue<object, Result, object>("jobs", { ...options, bucket, codec });
  return { sluice, queue: queue as Queue<object, Result> };
}

/** All that Redis stores with the prefix of a test, as one text. */
export async function storedText(prefix: string): Promise<string> {
  const redis = new Redis(inject("redisUrl"));
  const stored = await everythingOf(redis, prefix);
  redis.disconnect();
  return stored.map(({ key, value }) => `${key} ${value}`).join("\n");
}
