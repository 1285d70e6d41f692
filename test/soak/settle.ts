import { setTimeout as pause } from "node:timers/promises";
import { Queue as StoredQueue } from "bullmq";
import type { FromProducer, FromReplica } from "./messages.ts";
import type { SoakJob } from "./open-actor.ts";
import type { Stage } from "./stage.ts";

/** What the end of the load showed. */
export interface Settled {
  /** What replicas held before the load and after it. */
  readonly replicas: readonly {
    readonly before: FromReplica;
    readonly after: Extract<FromReplica, { kind: "rested" }>;
  }[];
  readonly producer: Extract<FromProducer, { kind: "rested" }>;
  readonly dead: ReadonlySet<number>;
  readonly waiting: ReadonlySet<number>;
}

/** How long the workers may take to do what waits, and what lies in backoff. */
const DRAIN_LIMIT_MS = 120_000;
const POLL_MS = 100;
const MOST_FAILED = 100_000;

/** Ends the load, lets the workers do what is left, and looks at what remains. */
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
