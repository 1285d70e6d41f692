import { expect, it } from "vitest";
import { waitUntil } from "../../../support/async/wait-until.ts";
import { areAllDone, upTo } from "../../../support/jobs/open-lanes.ts";
import { realSluices } from "../../../support/setup/real-sluice.ts";

const sluices = realSluices();

it("batches of an ordered queue keep the order of each key, and skip a paused one", async () => {
  const begun = new Map<string, number[]>();
  const running = new Set<string>();
  const together: string[] = [];
  const opened = [1, 2].map(() => {
    const sluice = sluices.open();
    const bucket = sluice.bucket("downstream", { rate: "1000/s" });
    return { sluice, queue: sluice.queue<number>("jobs", { bucket, ordered: true }) };
  });
  const { queue } = opened[0]!;
  const begunOf = (key: string): number[] => begun.get(key) ?? [];
  for (const key of ["acme", "bolt", "cord"])
    await queue.enqueueMany(upTo(20), { key, backoff: { baseMs: 1 } });

  for (const { sluice, queue: own } of opened) {
    sluice.worker(
      own,
      async (jobs, { contexts }) => {
        const keys = jobs.map(({ key }) => key as string);
        for (const [index, { data }] of jobs.entries()) {
          const key = keys[index]!;
          if (running.has(key)) together.push(key);
          running.add(key);
          if (contexts[index]!.attempt === 1) begun.set(key, [...begunOf(key), data]);
        }
        await new Promise(setImmediate);
        for (const key of keys) running.delete(key);
        return jobs.map(({ data }, index) =>
          data === 5 && contexts[index]!.attempt === 1 ? new Error("not yet") : data,
        );
      },
      { batch: { size: 2, waitMs: 10 } },
    );
  }
  await waitUntil(() => begunOf("acme").length > 2, "they are at work");
  await queue.pause({ key: "acme" });
  await waitUntil(async () => (await queue.counts({ key: "acme" })).active === 0, "none is held");
  const beforeResume = begunOf("acme").length;
  await waitUntil(() => begunOf("bolt").length + begunOf("cord").length === 40, "others go on");
  const atResume = begunOf("acme").length;
  await queue.resume({ key: "acme" });
  await waitUntil(() => areAllDone(opened[0]!), "all are done");

  expect(atResume).toBe(beforeResume);
  expect(beforeResume).toBeLessThan(20);
  expect(together).toEqual([]);
  for (const key of ["acme", "bolt", "cord"]) expect(begunOf(key)).toEqual(upTo(20));
});
