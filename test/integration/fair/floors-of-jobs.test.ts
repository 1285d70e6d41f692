import { setTimeout } from "node:timers/promises";
import { expect, it } from "vitest";
import { waitUntil } from "../../support/async/wait-until.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const POLICY = { rate: "200/s", fair: { floors: { acme: "80/s" } } } as const;
const TENANTS = Array.from({ length: 20 }, (_, number) => `t${number}`);
/** While the worker finds out how fast jobs of each tenant start. */
const WARM_UP = 200;
const STARTS = 600;

it("jobs of a tenant get its floor beside the jobs of many tenants, and no more when idle", async () => {
  const sluice = sluices.open();
  const queue = sluice.queue<string>("jobs", { bucket: sluice.bucket("downstream", POLICY) });
  const started: string[] = [];
  for (const key of TENANTS) {
    await queue.enqueueMany(Array.from({ length: 100 }, String), { key });
  }
  await queue.enqueueMany(Array.from({ length: 1_000 }, String), { key: "acme" });

  sluice.worker(queue, ({ key }) => void started.push(String(key)));
  await waitUntil(() => started.length >= WARM_UP + STARTS, "the jobs have started");

  const counted = started.slice(WARM_UP, WARM_UP + STARTS);
  const share = (key: string): number => counted.filter((each) => each === key).length / STARTS;
  expect(share("acme")).toBeGreaterThanOrEqual(0.37);
  expect(share("acme")).toBeLessThanOrEqual(0.5);
  // The others divide the rest.
  for (const key of TENANTS) expect(share(key)).toBeGreaterThanOrEqual(0.6 / 20 / 2);
});

it("a floor does not keep a slow worker from the jobs of others", async () => {
  const sluice = sluices.open();
  const policy = { rate: "1000/s", fair: { floors: { acme: "10/s" } } } as const;
  const queue = sluice.queue<string>("slow", { bucket: sluice.bucket("slow", policy) });
  for (const key of ["acme", "bolt"]) {
    await queue.enqueueMany(Array.from({ length: 150 }, String), { key });
  }
  const started: string[] = [];

  sluice.worker(
    queue,
    async ({ key }) => {
      started.push(String(key));
      await setTimeout(5);
    },
    { concurrency: 1 },
  );
  await waitUntil(() => started.length >= 100, "the jobs have started");

  const ofBolt = started.slice(0, 100).filter((key) => key === "bolt").length;
  expect(ofBolt).toBeGreaterThanOrEqual(35);
});
