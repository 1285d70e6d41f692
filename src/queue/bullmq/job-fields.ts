/**
 * Fields of a job's hash that no method of BullMQ's reads or writes, by the names that they have in Redis.
 * No upstream issue known; checked with bullmq 6.7.0.
 */
import type { Queue } from "bullmq";
import { PARK_MS, type Stored, type StoredOptions } from "./stored-job.ts";

/**
 * How often the job's worker has died. BullMQ keeps it when a failed job is retried (taskforcesh/bullmq#3555), and would
 * fail the job at once when the next worker dies.
 */
const DEATHS = "stc";
/** The place that a job came to when it first joined its lane; written by `lua/lib/lanes/join.lua`. */
const SEQ = "sluiceSeq";

/** Whether a job is on its way to its lane, in which it has never been. */
export async function isOnItsWay(queue: Queue, { id }: Stored<unknown>): Promise<boolean> {
  const client = await queue.getBackend().client;
  const key = queue.toKey(id!);
  // One that was in its lane, and waits for its next attempt, may be delayed by just as much.
  const [delay, seq] = await Promise.all([client.hget(key, "delay"), client.hget(key, SEQ)]);
  return delay === String(PARK_MS) && seq === null;
}

/** Makes a failed job like a new one: its workers' deaths are forgotten, and its `maxWaitMs` counts from now. */
export async function renew(queue: Queue, { id, opts }: Stored<unknown>): Promise<void> {
  const client = await queue.getBackend().client;
  const key = queue.toKey(id!);
  await client.hdel(key, DEATHS);
  const { maxWaitMs } = opts.sluice ?? {};
  const written = maxWaitMs === undefined ? null : await client.hget(key, "opts");
  if (maxWaitMs === undefined || written === null) return;
  // As they are stored, since BullMQ has shorter names for some of them there.
  const options = JSON.parse(written) as StoredOptions;
  const sluice = { ...options.sluice, startByMs: Date.now() + maxWaitMs };
  await client.hset(key, { opts: JSON.stringify({ ...options, sluice }) });
}
