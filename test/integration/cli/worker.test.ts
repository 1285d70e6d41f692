import { writeFile, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, inject, it, onTestFinished } from "vitest";
import { scriptProcesses } from "../../support/children/script-process.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const processes = scriptProcesses();

const MODULE = `
export default (sluice) => {
  const bucket = sluice.bucket("api", { rate: "1000/s" });
  const queue = sluice.queue("charges", { bucket });
  sluice.worker(queue, async ({ data }) => {
    console.log("did", data);
    console.error("did", data);
    return data;
  });
};`;

it("sluice worker ends no job early when the output of its handlers is not read", async () => {
  const folder = await mkdtemp(join(tmpdir(), "sluice-worker-"));
  onTestFinished(() => rm(folder, { recursive: true }));
  const module = join(folder, "w.mjs");
  await writeFile(module, MODULE);
  const service = sluices.open();
  const queue = service.queue("charges", { bucket: service.bucket("api", { rate: "1000/s" }) });
  const worker = processes.start("src/cli/main.ts", {
    args: ["--prefix", sluices.prefix(), "worker", module],
    env: { REDIS_URL: inject("redisUrl") },
    isBuilt: true,
  });
  await queue.enqueue(0);
  await waitUntil(() => worker.stdout.includes("did 0"), "it works");

  worker.readNoMore();
  const jobs = await Promise.all([1, 2, 3, 4, 5].map((data) => queue.enqueue(data)));
  const results = await Promise.all(jobs.map((job) => job.finished()));
  worker.signal("SIGTERM");

  expect(results).toEqual([1, 2, 3, 4, 5]);
  expect(await worker.ended).toBe(0);
});
