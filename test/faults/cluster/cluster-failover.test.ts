import { describe, expect, it } from "vitest";
import { StoreUnavailableError, type Sluice } from "sluice";
import { connect } from "../../../src/stores/redis/connection.ts";
import { createNotifications } from "../../../src/stores/redis/pubsub.ts";
import {
  nameOn,
  startOwnCluster,
  type ClusterNode,
  type RedisCluster,
} from "../../support/redis/cluster.ts";
import { openSluice } from "../../support/redis/for-one-test.ts";
import { reportFigures } from "../../support/docs/report-figures.ts";
import { longestGapMs } from "../../support/draws/steadily.ts";
import { drawSteadily, figuresOf, timesOf } from "../../support/draws/steady-draws.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const RATE = 100;
const HORIZON_CALLS = RATE / 10;

const openOn = ({ open }: RedisCluster): Sluice => openSluice({ redis: open(), prefix: "s" });

const strikes: [string, NodeJS.Signals][] = [
  ["is killed", "SIGKILL"],
  ["stands still", "SIGSTOP"],
];

describe("when one primary of a cluster", () => {
  it.each(strikes)(
    "%s, its replica serves its buckets, and the other buckets are not delayed",
    async (how, signal) => {
      const cluster = await startOwnCluster();
      const { primaries } = cluster;
      const [victim, ...others] = primaries as [ClusterNode, ...ClusterNode[]];
      const name = await nameOn(cluster, victim);
      const otherNames = await Promise.all(others.map((node) => nameOn(cluster, node)));
      const sluices = [openOn(cluster), openOn(cluster)];
      const struck = drawSteadily(
        sluices.map((sluice) => sluice.bucket(name, { rate: `${RATE}/s` })),
        { callers: 10 },
      );
      const untouched = otherNames.map((other) =>
        drawSteadily(
          sluices.map((sluice) => sluice.bucket(other, { rate: `${RATE}/s` })),
          { callers: 10 },
        ),
      );
      await waitUntil(() => struck.slots.length > 100, "calls leave");

      process.kill(victim.server.pid!, signal);
      const struckMs = performance.now();
      const before = untouched.map(({ slots }) => slots.length);
      await waitUntil(async () => {
        const owner = await cluster.ownerOf(name, others[0]);
        return owner !== undefined && owner.id !== victim.id;
      }, "the replica has taken over");
      const takenOverMs = performance.now();
      const meanwhile = untouched.map(({ slots }, index) => slots.length - before[index]!);
      const reached = struck.slots.length;
      await waitUntil(() => struck.slots.length > reached + 2 * RATE, "calls leave again");
      await Promise.all([struck, ...untouched].map((calls) => calls.stop()));

      const figures = figuresOf(timesOf(struck.slots), RATE);
      reportFigures(`of a cluster, one primary ${how}`, {
        ...figures,
        "ms until its replica takes over": takenOverMs - struckMs,
        "calls refused": struck.errors.length,
        "longest gap at other nodes, ms": Math.max(
          ...untouched.map(({ slots }) => longestGapMs(timesOf(slots))),
        ),
      });
      expect(struck.errors.filter((error) => !(error instanceof StoreUnavailableError))).toEqual(
        [],
      );
      expect(figures.extra).toBeLessThanOrEqual(HORIZON_CALLS);
      for (const { slots, errors } of untouched) {
        expect(errors).toEqual([]);
        expect(figuresOf(timesOf(slots), RATE).extra).toBe(0);
      }
      expect(Math.min(...meanwhile)).toBeGreaterThan(0);
    },
  );

  it.each(strikes)("%s, its replica serves the jobs of its queues", async (_name, signal) => {
    const cluster = await startOwnCluster();
    const victim = cluster.primaries[0]!;
    const name = await nameOn(cluster, victim);
    const sluice = openOn(cluster);
    const bucket = sluice.bucket(name, { rate: "200/s" });
    const queue = sluice.queue<number>(name, { bucket });
    const done = new Set<number>();
    sluice.worker(queue, async (job) => void done.add(job.data), { lockMs: 2_000 });
    await queue.enqueueMany(Array.from({ length: 50 }, (_, index) => index));
    await waitUntil(() => done.size === 50, "the first jobs are done");

    process.kill(victim.server.pid!, signal);
    const reasons: unknown[] = [];
    await waitUntil(
      () =>
        queue.enqueue(50).then(
          () => true,
          (reason: unknown) => (reasons.push(reason), false),
        ),
      "a job is stored again",
    );
    await waitUntil(() => done.has(50), "it is done");

    for (const reason of reasons) expect(reason).toBeInstanceOf(StoreUnavailableError);
  });

  it.each(strikes)(
    "%s, listeners of that node get change notifications again",
    async (_name, signal) => {
      const cluster = await startOwnCluster();
      const { open, primaries } = cluster;
      const [victim, other] = primaries as [ClusterNode, ClusterNode];
      // Each listens at a node by chance: of ten, some listen at the one that goes.
      const listeners = Array.from({ length: 10 }, () => {
        let heard = 0;
        const calls = createNotifications(() => connect(open(), "subscriber"), "s");
        calls.listen("asker", () => void (heard += 1));
        return { heard: () => heard, calls };
      });
      const bucket = openOn(cluster).bucket(await nameOn(cluster, other), { rate: "10/s" });
      const reasons: unknown[] = [];
      async function untilAllHear(): Promise<void> {
        const before = listeners.map(({ heard }) => heard());
        await waitUntil(async () => {
          // The log of changes may lie on the node that goes: a change fails until its replica has taken over.
          await bucket.pause({ forMs: 1 }).catch((error: unknown) => reasons.push(error));
          return listeners.every(({ heard }, index) => heard() > before[index]!);
        }, "all hear");
      }
      await untilAllHear();

      process.kill(victim.server.pid!, signal);
      await untilAllHear();

      expect(listeners.every(({ heard }) => heard() > 1)).toBe(true);
      for (const reason of reasons) expect(reason).toBeInstanceOf(StoreUnavailableError);
      for (const { calls } of listeners) calls.close();
    },
  );
});
