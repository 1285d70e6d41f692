import { setTimeout as pause } from "node:timers/promises";
import { Queue as StoredQueue } from "bullmq";
import type { Redis } from "ioredis";
import type { FailedJob, Queue } from "sluice";
import type { FromProducer, FromReplica } from "./processes/messages.ts";
import { PREFIX, QUEUE, TENANTS_QUEUE } from "./processes/open-actor.ts";
import type { Stage } from "./stage/stage.ts";
import type { TenantJob } from "./tenants/tenants.ts";

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
  readonly tenants: {
    readonly producer: Settled["producer"];
    readonly dead: readonly FailedJob<TenantJob>[];
    readonly waiting: ReadonlySet<number>;
  };
}

/** The time that workers have for the waiting jobs and those in backoff. */
const DRAIN_LIMIT_MS = 240_000;
const POLL_MS = 100;
const MOST_FAILED = 100_000;

/** Ends the load, lets the workers finish, and reads what remains. */
export async function settle(stage: Stage): Promise<Settled> {
  const { producer, tenantsProducer, replicas, control, redis, downstream } = stage;
  const rest = { kind: "rest" };
  const rested = Promise.all([
    producer.next("rested"),
    tenantsProducer.next("rested"),
    Promise.all(replicas.map((each) => each.next("rested"))),
  ]);
  for (const actor of [producer, tenantsProducer, ...replicas]) actor.send(rest);
  const [produced, tenants, after] = await rested;

  const endsAtMs = performance.now() + DRAIN_LIMIT_MS;
  const queues = [control.queue, control.tenants];
  while (!(await areEmpty(queues)) && performance.now() < endsAtMs) await pause(POLL_MS);
  // In the order in which jobs go: one that goes on meanwhile is seen twice.
  const waiting = await stillWaiting(redis.url, control.queue.stored);
  const tenantsWaiting = await stillWaiting(redis.url, control.tenants.stored);
  const failed = await control.queue.failed({ limit: MOST_FAILED });
  const tenantsDead = await control.tenants.failed({ limit: MOST_FAILED });
  for (const each of [downstream, stage.tenantsDownstream]) {
    const reported = each.next("report");
    each.send({ kind: "report" });
    await reported;
  }
  return {
    replicas: replicas.map(({ first }, index) => ({
      before: first,
      after: after[index] as Settled["replicas"][number]["after"],
    })),
    producer: produced as Settled["producer"],
    dead: new Set(failed.map(({ data }) => data.number)),
    waiting,
    tenants: { producer: tenants, dead: tenantsDead, waiting: tenantsWaiting },
  };
}

async function areEmpty(queues: readonly Pick<Queue<never>, "counts">[]): Promise<boolean> {
  const counts = await Promise.all(queues.map((queue) => queue.counts()));
  return counts.every(({ active, waiting, delayed }) => active + waiting + delayed === 0);
}

async function stillWaiting(
  url: string,
  { name, prefix }: { readonly name: string; readonly prefix: string },
): Promise<ReadonlySet<number>> {
  const stored = new StoredQueue<{ readonly number: number }>(name, {
    connection: { url },
    prefix,
  });
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
  const { replicas, workers, producer, tenantsProducer, control, redis } = stage;
  const all = [producer, tenantsProducer, ...replicas, ...workers];
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
const OF_A_QUEUE = ["lanes:state"];
/** Those of earlier builds, which may run beside this one. */
const OF_EARLIER_BUILDS = ["lanes:fed", "lanes:wants"];

/** BullMQ's keys stay with the queue; the keys of a lane are next to them and have to go. */
function staysWithQueue(key: string): boolean {
  const bases = [QUEUE, TENANTS_QUEUE].map((queue) => `${PREFIX}:{${queue}}:`);
  const base = bases.find((each) => key.startsWith(each));
  if (base === undefined) return false;
  const name = key.slice(base.length);
  return !name.startsWith("lane") || [...OF_A_QUEUE, ...OF_EARLIER_BUILDS].includes(name);
}
