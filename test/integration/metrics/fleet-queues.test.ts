import { expect, it } from "vitest";
import { fleetMetrics } from "sluice/metrics";
import { linesOf, valueOf } from "../../support/metrics/exposition.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();

it("one process exports the queues of all, whichever declares them", async () => {
  const [worker, operator] = [sluices.open({ logger: { warn() {}, error() {} } }), sluices.open()];
  const bucket = worker.bucket("mail", { rate: "100/s" });
  const queue = worker.queue<string>("mail", { bucket, defaults: { attempts: 1 } });
  await queue.enqueueMany(["good", "bad"]);
  const ended: string[] = [];
  const working = worker.worker(queue, ({ data }) => {
    ended.push(data);
    if (data === "bad") throw new Error("no");
  });
  await waitUntil(async () => (await queue.counts()).failed === 1, "one is a dead letter");
  await waitUntil(async () => (await queue.counts()).done === 1, "one is done");
  await working.close();
  await queue.enqueueMany(["waits", "waits too"]);
  const fleet = fleetMetrics(operator, { everyMs: 1_000 });

  await waitUntil(async () => {
    const text = await fleet.text();
    return valueOf(text, "sluice_queue_jobs", { queue: "mail", state: "waiting" }) === 2;
  }, "the queue is exported");

  const text = await fleet.text();
  const of = (name: string) => valueOf(text, name, { queue: "mail" });
  expect(valueOf(text, "sluice_queue_jobs", { queue: "mail", state: "failed" })).toBe(1);
  expect(valueOf(text, "sluice_queue_jobs", { queue: "mail", state: "done" })).toBe(1);
  expect(of("sluice_queue_oldest_due_seconds")).toBeGreaterThan(0);
  expect(of("sluice_queue_unexplained_delay_seconds")).toBe(0);
  expect(of("sluice_dead_letters_oldest_seconds")).toBeGreaterThan(0);
  expect(of("sluice_queue_workers_wanted")).toBe(1);
  // Nobody works on it: nothing is promised.
  expect(linesOf(text, "sluice_queue_drain_seconds")).toEqual([]);
});
