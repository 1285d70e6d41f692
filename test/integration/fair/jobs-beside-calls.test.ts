import { expect, it } from "vitest";
import { waitUntil } from "../../support/async/wait-until.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const POLICY = { rate: "200/s" } as const;
const LOOPS = 30;
/** While the worker finds out how fast jobs of each tenant start. */
const WARM_UP = 600;
const STARTS = 800;

it("jobs of a tenant get their share beside a tenant with jobs and many other calls", async () => {
  const [caller, worker] = [sluices.open(), sluices.open()];
  const calls = caller.bucket("downstream", POLICY);
  const queue = worker.queue<string>("jobs", { bucket: worker.bucket("downstream", POLICY) });
  const started: string[] = [];
  let hasEnded = false;
  async function loop(): Promise<void> {
    while (!hasEnded) {
      await calls.draw({ key: "acme" });
      started.push("a call of acme");
    }
  }
  for (const key of ["acme", "bolt"]) {
    await queue.enqueueMany(Array.from({ length: 1_500 }, String), { key });
  }

  const loops = Array.from({ length: LOOPS }, loop);
  worker.worker(queue, ({ key }) => void started.push(`a job of ${String(key)}`));
  await waitUntil(() => started.length >= WARM_UP + STARTS, "the calls and jobs have started");
  hasEnded = true;
  await Promise.all(loops);

  const counted = started.slice(WARM_UP, WARM_UP + STARTS);
  const ofBolt = counted.filter((each) => each === "a job of bolt").length;
  expect(counted).toContain("a job of acme");
  expect(ofBolt / STARTS).toBeGreaterThanOrEqual(0.45);
  expect(ofBolt / STARTS).toBeLessThanOrEqual(0.55);
});
