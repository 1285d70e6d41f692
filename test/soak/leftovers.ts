import type { Redis } from "ioredis";
import { setTimeout as pause } from "node:timers/promises";
import { PREFIX, QUEUE } from "./open-actor.ts";
import type { Stage } from "./stage.ts";

/** What is there that should be gone. */
export interface Leftovers {
  /** Processes that did not end by themselves when they were asked to. */
  readonly processes: readonly string[];
  /** Connections in Redis, beside the one that asks. */
  readonly clients: readonly string[];
  /** Keys that would stay for good. */
  readonly keys: readonly string[];
}

const CLIENTS_LIMIT_MS = 10_000;
const POLL_MS = 50;

/** Closes all that goes through Sluice, and looks for what is left. */
export async function closeAndLook(stage: Stage): Promise<Leftovers> {
  const { replicas, workers, producer, control, redis } = stage;
  const all = [producer, ...replicas, ...workers];
  const endedByThemselves = await Promise.all(all.map((each) => each.end()));
  await control.sluice.close();
  return {
    processes: all.flatMap(({ name }, index) => (endedByThemselves[index] ? [] : name)),
    clients: await otherClients(redis.operator),
    keys: await lastingKeys(redis.operator),
  };
}

/** A connection that was broken is found by Redis a moment later. */
async function otherClients(operator: Redis): Promise<string[]> {
  const own = String(await operator.client("ID"));
  const endsAtMs = performance.now() + CLIENTS_LIMIT_MS;
  for (;;) {
    const list = String(await operator.client("LIST"))
      .trim()
      .split("\n");
    const others = list.filter((line) => !line.startsWith(`id=${own} `));
    if (others.length === 0 || performance.now() > endsAtMs) return others;
    await pause(POLL_MS);
  }
}

async function lastingKeys(operator: Redis): Promise<string[]> {
  const lasting: string[] = [];
  for await (const keys of operator.scanStream({ count: 1_000 })) {
    for (const key of keys as string[]) {
      if (!staysWithQueue(key) && (await operator.pttl(key)) === -1) lasting.push(key);
    }
  }
  return lasting;
}

/** What there is one of for a queue, however many jobs and keys it has: who wants how many, and whose turn it is. */
const OF_A_QUEUE = ["lanes:state", "lanes:wants"];

/** BullMQ's keys stay with its queue; what there is of each lane stands beside them, and goes. */
function staysWithQueue(key: string): boolean {
  const base = `${PREFIX}:{${QUEUE}}:`;
  if (!key.startsWith(base)) return false;
  const name = key.slice(base.length);
  return !name.startsWith("lane") || OF_A_QUEUE.includes(name);
}
