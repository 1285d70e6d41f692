import { expect, inject, it, onTestFinished } from "vitest";
import { createSluice } from "sluice";
import { startTcpProxy } from "../../support/servers/tcp-proxy.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const sluices = realSluices();
const OUTAGE_MS = 5_000;
const MAX_WAIT_MS = 4_000;

it("a job that comes at the end of its worker's outage is not too late", async () => {
  const prefix = sluices.prefix();
  const proxy = await startTcpProxy(Number(new URL(inject("redisUrl")).port));
  onTestFinished(() => proxy.close());
  const producer = sluices.open({ prefix });
  const jobs = producer.queue<string>("jobs", {
    bucket: producer.bucket("downstream", { rate: "1000/s" }),
  });
  const logger = { warn: () => {}, error: () => {} };
  const sluice = createSluice({ redis: `redis://127.0.0.1:${proxy.port}`, prefix, logger });
  onTestFinished(() => sluice.close());
  const bucket = sluice.bucket("downstream", { rate: "1000/s" });
  const begun: string[] = [];
  let end = (): void => {};
  const isLate = new Promise<void>((resolve) => (end = resolve));
  sluice.worker(
    sluice.queue<string>("jobs", { bucket }),
    async ({ data }) => {
      begun.push(data);
      if (data === "first") await isLate;
    },
    // Nothing else asks for the time meanwhile.
    { concurrency: 1, lockMs: 120_000 },
  );
  await jobs.enqueue("first");
  await waitUntil(() => begun.length === 1, "the first job runs");

  proxy.set("stall");
  proxy.cut();
  const sinceMs = performance.now();
  // The worker asks for the next job as soon as this one has ended; the answer comes after the outage.
  end();
  await waitUntil(() => performance.now() - sinceMs >= OUTAGE_MS, "the outage has lasted");
  const second = await jobs.enqueue("second", { maxWaitMs: MAX_WAIT_MS });
  proxy.set("pass");
  proxy.cut();
  await second.finished();

  expect(begun).toEqual(["first", "second"]);
});
