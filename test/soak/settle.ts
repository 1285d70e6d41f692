import { setTimeout as pause } from "node:timers/promises";
import { Queue as StoredQueue } from "bullmq";
import type { Redis } from "ioredis";
import type { FromProducer, FromReplica } from "./processes/messages.ts";
import { type SoakJob, PREFIX, QUEUE } from "./processes/open-actor.ts";
import type { Stage } from "./stage/stage.ts";

/** The state after the load. */
export interface Settled {
  /** The replicas' resources before and after the load. */
  readonly replicas: readonly {
    readonly before: FromReplica;
    readonly after: Extract<FromReplica, { kind: "rested" }>;
  }[];
  readonly producer: Extract<FromProducer, { kind: "rested" }>;
  readonly dead: ReadonlySet<number>;
  readonly waiting: ReadonlySet<number>;
}

/** The time that workers have for the waiting jobs and those in backoff. */
const DRAIN_LIMIT_MS = 120_000;
const POLL_MS = 100;
const MOST_FAILED = 100_000;

/** Ends the load, lets the workers finish, and reads what remains. */
export async function settle(stage: Stage): Promise<Settled> {
  const { producer, replicas, control, redis, downstream } = stage;
  const rest = { kind: "rest" };
  const rested = [producer.next("rested"), ...replicas.map((each) => each.next("rested"))] as const;
  for (const actor of [producer, ...replicas]) actor.send(rest);
  const [produced, ...after] = await Promise.all(rested);

  const endsAtMs = performance.now() + DRAIN_LIMIT_MS;
  while (!(await isEmpty(stage)) && performance.now() < endsAtMs) await pause(POLL_MS);
  const failed = await control.queue.failed({ limit: MOST_FAILED });
  const waiting = await stillWaiting(redis.url, control.queue.stored);
  const reported = downstream.next("report");
  downstream.send({ kind: "report" });
  await reported;
  return {
    replicas: replicas.map(({ first }, index) => ({
      before: first,
      after: after[index] as Settled["replicas"][number]["after"],
    })),
    producer: produced as Settled["producer"],
    dead: new Set(failed.map(({ data }) => data.number)),
    waiting,
  };
}

async function isEmpty({ control: { queue } }: Stage): Promise<boolean> {
  const { active, waiting, delayed } = await queue.counts();
  return active + waiting + delayed === 0;
}

async function stillWaiting(
  url: string,
  { name, prefix }: { readonly name: string; readonly prefix: string },
): Promise<ReadonlySet<number>> {
  const stored = new StoredQueue<SoakJob>(name, { connection: { url }, prefix });
  const jobs = await stored.getJobs(["waiting", "active", "delayed", "prioritized"]);
  await stored.close();
  return new Set(jobs.map(({ data }) => data.number));
}

/** What should be gone but is still there. */
export interface Leftovers {
  /** Processes that did not end by themselves after SIGTERM. */
  readonly processes: readonly string[];
  /** Connections to Redis, except the one that asks. */
  readonly clients: readonly string[];
  /** Keys without an expiry. */
  readonly keys: readonly string[];
}

const CLIENTS_LIMIT_MS = 10_000;
const LOOK_EVERY_MS = 50;

/** Closes everything that uses Sluice, and looks for what is left. */
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

/** Waits a while, because Redis notices a broken connection a moment later. */
async function otherClients(operator: Redis): Promise<string[]> {
  const own = String(await operator.client("ID"));
  const endsAtMs = performance.now() + CLIENTS_LIMIT_MS;
  for (;;) {
    const list = String(await operator.client("LIST"))
      .trim()
      .split("\n");
    const others = list.filter((line) => !line.startsWith(`id=${own} `));
    if (others.length === 0 || performance.now() > endsAtMs) return others;
    await pause(LOOK_EVERY_MS);
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

/** Keys of which each queue has one, however many jobs and keys it has. */
const OF_A_QUEUE = ["lanes:state", "lanes:wants"];

/** BullMQ's keys stay with the queue; the keys of a lane are next to them and have to go. */
function staysWithQueue(key: string): boolean {
  const base = `${PREFIX}:{${QUEUE}}:`;
  if (!key.startsWith(base)) return false;
  const name = key.slice(base.length);
  return !name.startsWith("lane") || OF_A_QUEUE.includes(name);
}
