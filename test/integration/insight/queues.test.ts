import { Redis } from "ioredis";
import { describe, expect, inject, it, onTestFinished } from "vitest";
import { deferred } from "../../support/async/deferred.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { children } from "../../support/children/child.ts";
import { startMember } from "../../support/jobs/queue-members.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const processes = children();

describe("the overview of queues and workers", () => {
  it("lists the queues and workers of all processes, and their jobs", async () => {
    const operator = sluices.open();
    const prefix = sluices.prefix();
    const [producer] = await Promise.all([
      startMember(processes, { prefix }),
      startMember(processes, { prefix, worker: { concurrency: 3 } }),
      startMember(processes, { prefix, worker: { concurrency: 4 } }),
    ]);
    await waitUntil(async () => (await operator.overview()).workers.length === 2, "all are told");
    await producer.call("enqueue", { name: "long", takesMs: 3_600_000 });

    await waitUntil(async () => (await operator.overview()).queues[0]?.running === 1, "one runs");

    const { queues, workers, replicas, nextQueue } = await operator.overview();
    const jobs = { name: "jobs", bucket: "downstream", workers: 2, running: 1 };
    expect(queues).toEqual([{ ...jobs, totalConcurrency: 7, places: 7 }]);
    expect(nextQueue).toBeUndefined();
    expect(replicas).toHaveLength(3);
    const ids = replicas.map(({ replica }) => replica);
    for (const { replica } of workers) expect(ids).toContain(replica);
    expect(workers.map(({ concurrency }) => concurrency).toSorted((a, b) => a - b)).toEqual([3, 4]);
    expect(workers.map(({ running }) => running).toSorted((a, b) => a - b)).toEqual([0, 1]);
    expect(workers[0]).toMatchObject({ queue: "jobs", state: "running", paused: false });
  });

  it("stops counting a killed worker when the queue's status does", async () => {
    const operator = sluices.open();
    const bucket = operator.bucket("downstream", { rate: "100/s" });
    const queue = operator.queue("jobs", { bucket });
    const member = await startMember(processes, { prefix: sluices.prefix(), worker: {} });
    const isListed = async () => (await operator.overview()).workers[0]?.state === "running";
    await waitUntil(isListed, "it is listed");

    member.signal("SIGKILL");
    await waitUntil(async () => (await queue.status()).workers === 0, "its time is over");
    const { queues, workers } = await operator.overview();

    expect(queues).toMatchObject([{ name: "jobs", workers: 0, totalConcurrency: 0, running: 0 }]);
    expect(workers).toMatchObject([{ queue: "jobs", state: "silent" }]);
  });

  it("shows a worker as paused, closing, and then gone, while its queue stays", async () => {
    const [service, operator] = [sluices.open(), sluices.open()];
    const bucket = service.bucket("api", { rate: "1000/s" });
    const queue = service.queue("mails", { bucket });
    const isToEnd = deferred();
    const worker = service.worker(queue, () => isToEnd.promise);
    await queue.enqueue(1);
    const listed = async () => (await operator.overview()).workers[0];
    await waitUntil(async () => (await listed())?.running === 1, "it runs");
    await queue.pause();
    await waitUntil(async () => (await listed())?.paused === true, "it is paused");

    const closing = worker.close();

    await waitUntil(async () => (await listed())?.state === "closing", "it is closing");
    isToEnd.resolve();
    await closing;
    await waitUntil(async () => (await listed()) === undefined, "it is gone");
    await service.close();
    expect(await operator.overview()).toMatchObject({
      queues: [{ name: "mails", bucket: "api", workers: 0, totalConcurrency: 0, running: 0 }],
      buckets: [{ name: "api" }],
      workers: [],
      replicas: [],
    });
  });

  it("shows a queue, and its bucket, of a process that closed right after opening it", async () => {
    const [service, operator] = [sluices.open(), sluices.open()];
    service.queue("mails", { bucket: service.bucket("api", { rate: "1000/s" }) });
    await service.close();

    const { queues, buckets } = await operator.overview();

    expect(queues.map(({ name, bucket }) => [name, bucket])).toEqual([["mails", "api"]]);
    expect(buckets.map(({ name }) => name)).toEqual(["api"]);
  });

  it("comes in pages of queues", async () => {
    const [service, operator] = [sluices.open(), sluices.open()];
    const bucket = service.bucket("api", { rate: "1000/s" });
    const names = ["a", "b", "c", "d", "e"];
    for (const name of names) service.queue(name, { bucket });
    await waitUntil(async () => (await operator.overview()).queues.length === 5, "all are told");

    const first = await operator.overview({ limit: 2 });
    const second = await operator.overview({ limit: 3, afterQueue: first.nextQueue });

    expect([...first.queues, ...second.queues].map(({ name }) => name)).toEqual(names);
    expect(first.nextQueue).toBe("b");
    expect(second.nextQueue).toBeUndefined();
  });

  it("is reported again to a Redis that lost it, without processes that were killed", async () => {
    const [service, operator] = [sluices.open(), sluices.open()];
    const bucket = service.bucket("api", { rate: "1000/s" });
    service.worker(service.queue("mails", { bucket }), () => undefined);
    await waitUntil(async () => (await operator.overview()).workers.length === 1, "it is told");
    const redis = new Redis(inject("redisUrl"));
    onTestFinished(() => redis.disconnect());

    await redis.del(await redis.keys(`${sluices.prefix()}:{:fleet}:*`));
    const workers = `${sluices.prefix()}:{:fleet}:workers`;
    for (let dead = 0; dead < 5; dead++) await redis.hset(workers, `dead-${dead}`, "[]");

    await waitUntil(async () => {
      await bucket.draw();
      return (await operator.overview()).workers.length === 1;
    }, "it is told again");
    expect((await operator.overview()).queues).toMatchObject([{ name: "mails", workers: 1 }]);
    expect(await redis.hlen(workers)).toBe(1);
    const keys = await redis.keys(`${sluices.prefix()}:{:fleet}:*`);
    for (const key of keys) expect([key, (await redis.pttl(key)) > 0]).toEqual([key, true]);
  });
});
