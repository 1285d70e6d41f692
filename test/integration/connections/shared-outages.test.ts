import { expect, inject, it, onTestFinished } from "vitest";
import { createSluice } from "sluice";
import { createBackend } from "../../../src/stores/redis/backend.ts";
import { startTcpProxy } from "../../support/servers/tcp-proxy.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const sluices = realSluices();
const logger = { warn: () => {}, error: () => {} };

it("a worker that is closed while Redis is unreachable leaves its jobs to others on its connection", async () => {
  const prefix = sluices.prefix();
  const proxy = await startTcpProxy(Number(new URL(inject("redisUrl")).port));
  onTestFinished(() => proxy.close());
  const producer = sluices.open({ prefix });
  const bucket = producer.bucket("downstream", { rate: "1000/s" });
  const jobs = producer.queue<string>("jobs", { bucket });
  const sluice = createSluice({ redis: `redis://127.0.0.1:${proxy.port}`, prefix, logger });
  onTestFinished(() => sluice.close());
  const queue = sluice.queue<string>("jobs", {
    bucket: sluice.bucket("downstream", { rate: "1000/s" }),
  });
  const done: string[] = [];
  let end = (): void => {};
  const isOver = new Promise<void>((resolve) => (end = resolve));
  let hasBegun = false;
  // What it took with an answer that comes after its end would be nobody's until its lock ends.
  const options = { concurrency: 1, lockMs: 120_000 };
  const closing = sluice.worker(
    queue,
    async ({ data }) => {
      hasBegun = true;
      if (data === "first") await isOver;
      done.push(data);
    },
    options,
  );
  await jobs.enqueue("first");
  await waitUntil(() => hasBegun, "the first job runs");
  sluice.worker(queue, async ({ data }) => void done.push(data), options);
  // Slots, their news, jobs, and one for each worker to wait on.
  await waitUntil(() => proxy.clients.size === 5, "both are connected");

  proxy.set("stall");
  proxy.cut();
  end();
  await waitUntil(() => done.length === 1, "the first job has ended here");
  await closing.close({ deadlineMs: 100 });
  await jobs.enqueueMany(["second", "third"]);
  proxy.set("pass");
  proxy.cut();

  await waitUntil(async () => (await jobs.counts()).done === 3, "all are done");
  expect(done.toSorted()).toEqual(["first", "second", "third"]);
  await waitUntil(() => proxy.clients.size === 4, "what the closed one waited on is closed");
  // It would be connected again a second later, if its worker were not known to be closed.
  await (await jobs.enqueue("later", { delayMs: 1_500 })).finished();
  expect(proxy.clients.size).toBe(4);
});

it("connections that come and go leave no listener at the client that they share", async () => {
  const breaker = {};
  const common = { prefix: sluices.prefix(), timeoutMs: 2_000, breaker, logger };
  const backend = createBackend({ redis: inject("redisUrl"), ...common, onChange: () => {} });
  onTestFinished(() => backend.store.close());
  const stays = backend.connectQueue("stays", "worker");
  onTestFinished(() => stays.close());
  const { client } = stays;
  await stays.untilReady(2_000);
  const counts = (): number[] =>
    client.eventNames().map((name) => client.listenerCount(name as string));
  const before = counts();

  for (let turn = 0; turn < 20; turn += 1) {
    const comes = backend.connectQueue(`goes-${turn}`, "worker");
    comes.onReady(() => {});
    comes.clockOf("goes");
    expect(comes.client).toBe(client);
    comes.close();
    comes.close();
  }

  expect(counts()).toEqual(before);
  expect(client.status).toBe("ready");
});
