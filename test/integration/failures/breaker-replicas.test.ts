import { describe, expect, it } from "vitest";
import { waitUntil } from "../../support/async/wait-until.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const NEVER = 10_000;

/** A replica with a worker of one place, of which `isAway` says for which jobs the downstream is away. */
function startReplica(
  { failures, coolMs = 20 }: { readonly failures: number; readonly coolMs?: number },
  isAway: (job: number, lines: readonly string[]) => boolean,
) {
  const lines: string[] = [];
  const warn = (_facts: unknown, text: string): void => void lines.push(text);
  const sluice = sluices.open({ logger: { warn, error: () => {} } });
  const breaker = { failures, coolMs, maxCoolMs: Math.max(40, coolMs) };
  const bucket = sluice.bucket("downstream", { rate: "1000/s", breaker });
  const queue = sluice.queue<number>("jobs", { bucket });
  const handler = ({ data }: { readonly data: number }): void => {
    if (isAway(data, lines)) throw Object.assign(new Error("refused"), { code: "ECONNREFUSED" });
  };
  return { bucket, queue, lines, worker: sluice.worker(queue, handler, { concurrency: 1 }) };
}

function isOpen(lines: readonly string[]): boolean {
  return lines.some((line) => line.includes("is unreachable"));
}

const OFTEN = { attempts: 1_000, backoff: { baseMs: 1, maxMs: 1 } };

describe("a downstream that one worker has found unreachable", () => {
  it("costs no attempt in another worker, which has seen no failure yet, until it is back", async () => {
    const first = startReplica({ failures: 2 }, () => true);
    await first.queue.enqueueMany([0, 1], OFTEN);
    await waitUntil(() => isOpen(first.lines), "it is open");
    await first.worker.close();
    await first.queue.enqueue(2, { attempts: 1 });
    const tried = new Set<number>();
    const second = startReplica({ failures: NEVER }, (job) => {
      const isBack = tried.size === 3;
      tried.add(job);
      return !isBack;
    });
    await waitUntil(async () => (await second.queue.counts()).done === 3, "all are done");
    await second.worker.close();

    const third = startReplica({ failures: NEVER }, () => true);
    await third.queue.enqueue(3, { attempts: 1 });
    await waitUntil(async () => (await third.queue.counts()).failed === 1, "attempts count again");

    expect((await third.queue.failed()).map(({ data }) => data)).toEqual([3]);
  });

  it("is cooled down for all replicas", async () => {
    const { queue } = startReplica({ failures: 1, coolMs: 60_000 }, () => true);
    const other = sluices.open().bucket("downstream", { rate: "1000/s" });
    await queue.enqueue(0, OFTEN);

    await waitUntil(async () => (await other.peek()).coolingForMs > 0, "it cools down");

    expect((await other.peek()).coolingForMs).toBeGreaterThan(30_000);
  });

  it("is found reachable by other jobs, although the first of the queue fails on every attempt", async () => {
    const { queue } = startReplica({ failures: 2 }, (job, lines) => job < 2 || !isOpen(lines));
    await queue.enqueueMany([0, 1, 2, 3], OFTEN);

    await waitUntil(async () => (await queue.counts()).done === 2, "the others are done");

    expect((await queue.counts()).failed).toBe(0);
  });
});
