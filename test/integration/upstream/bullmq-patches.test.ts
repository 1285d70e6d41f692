/**
 * Why each patch of `src/stores/redis/ioredis/` is there, shown on BullMQ as it is without them. Such a test
 * fails when an upgrade mends the fault, or renames what the patch takes hold of: then the patch can go, or must follow.
 */
import { randomUUID } from "node:crypto";
import { Queue, QueueEvents, Worker } from "bullmq";
import type { Redis } from "ioredis";
import { describe, expect, it, vi } from "vitest";
import { readEvent } from "../../../src/queue/bullmq/stored-events.ts";
import { portOf, startOwnRedis } from "../../support/redis/for-one-test.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import {
  closeAfterTest,
  openUnpatched,
  startSharedProxy,
} from "../../support/servers/unpatched.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

describe("closing.ts", () => {
  it("adoptCopies: BullMQ copies a worker's client to block on", async () => {
    const client = openUnpatched({ maxRetriesPerRequest: null });
    const duplicate = vi.spyOn(client, "duplicate");

    const worker = new Worker("jobs", async () => {}, { connection: client, prefix: "patches" });
    await worker.waitUntilReady();
    await worker.close();

    expect(duplicate).toHaveBeenCalledTimes(1);
  });

  it("adoptCopies: BullMQ leaves a copy open whose first attempt to connect failed", async () => {
    const proxy = await startSharedProxy();
    const client = openUnpatched({
      port: proxy.port,
      maxRetriesPerRequest: null,
      lazyConnect: true,
    });
    await client.connect();
    const duplicate = vi.spyOn(client, "duplicate");

    proxy.refuseNext();
    const events = new QueueEvents("jobs", { connection: client, prefix: "patches" });
    events.on("error", () => undefined);
    const refusal = await rejectionOf(events.waitUntilReady());
    await events.close().catch(() => undefined);

    const copy = closeAfterTest(duplicate.mock.results[0]!.value as Redis);
    expect(refusal).toEqual(new Error("Connection is closed."));
    await waitUntil(() => copy.status === "ready", "the copy has connected by itself");
  });
});

describe("stored-events.ts", () => {
  it("readEvent: reads the same event and position as BullMQ's own reader", async () => {
    const client = openUnpatched({ maxRetriesPerRequest: null });
    const prefix = `patches-${randomUUID()}`;
    const queue = new Queue("jobs", { connection: client, prefix });
    const { id } = await queue.add("job", { n: 1 });
    const worker = new Worker(
      "jobs",
      async (job) => {
        await job.updateProgress({ half: true });
        return { n: 2 };
      },
      { connection: client, prefix },
    );
    const events = new QueueEvents("jobs", { connection: client, prefix, lastEventId: "0" });
    const theirs: unknown[] = [];
    for (const event of ["added", "active", "progress", "completed"] as const) {
      events.on(event, (fields: object) => void theirs.push({ ...fields, event }));
    }
    await waitUntil(() => theirs.length === 4, "all events are heard");

    const entries = await client.xrange(queue.toKey("events"), "-", "+");
    await Promise.all([worker.close(), events.close(), queue.close()]);

    const ours = entries.map(([, fields]) => readEvent(fields)).filter(({ jobId }) => jobId === id);
    expect(ours.filter(({ event }) => event !== "waiting")).toEqual(theirs);
  });
});

describe("for-bullmq.ts", () => {
  it("retryInfo: ioredis asks INFO with a callback, BullMQ without, and gives up when it is refused", async () => {
    const client = openUnpatched({ lazyConnect: true });
    const given: number[] = [];
    const info = client.info.bind(client) as (...all: unknown[]) => Promise<string>;
    client.info = ((...all: unknown[]) => {
      given.push(all.length);
      return all.length > 0 ? info(...all) : Promise.reject(new Error("NOPERM"));
    }) as typeof client.info;

    const queue = new Queue("jobs", { connection: client, prefix: "patches" });
    queue.on("error", () => undefined);

    expect(await rejectionOf(queue.waitUntilReady())).toEqual(new Error("NOPERM"));
    expect(await rejectionOf(queue.count())).toEqual(new Error("NOPERM"));
    expect(given).toEqual([1, 0]);
  });

  it("retryScripts: these scripts of BullMQ bring jobs, or are named as if they did", async () => {
    const client = openUnpatched();
    const define = vi.spyOn(client, "defineCommand");
    const queue = new Queue("jobs", { connection: client, prefix: "patches" });
    await queue.waitUntilReady();

    const names = define.mock.calls.map(([name]) => name.replace(/:.*/, ""));

    expect(names.filter((name) => name.startsWith("add")).toSorted()).toEqual([
      "addDelayedJob",
      "addJobScheduler",
      "addLog",
      "addParentJob",
      "addPrioritizedJob",
      "addStandardJob",
    ]);
  });

  it("retryScripts: while memory is full, BullMQ cannot fetch a job", async () => {
    const { url } = await startOwnRedis();
    const client = openUnpatched({ port: portOf({ url }), maxRetriesPerRequest: null });
    const queue = new Queue("jobs", { connection: client, prefix: "patches" });
    await queue.add("job", {});
    const worker = new Worker("jobs", undefined, { connection: client, prefix: "patches" });
    worker.on("error", () => undefined);
    await worker.waitUntilReady();

    await client.config("SET", "maxmemory", "1");

    expect(String(await rejectionOf(worker.getNextJob("token")))).toContain("OOM");
    await worker.close(true);
  });

  it("retryScripts: a script that Redis forgets twice is refused", async () => {
    const { url } = await startOwnRedis();
    const redis = openUnpatched({ port: portOf({ url }) });
    redis.defineCommand("count", { numberOfKeys: 1, lua: "return redis.call('INCR', KEYS[1])" });
    const count = Reflect.get(redis, "count") as (key: string) => Promise<number>;
    await count.call(redis, "a");
    const send = redis.sendCommand.bind(redis);
    let sent = 0;
    redis.sendCommand = (command, stream) => {
      const isScript = command.name.startsWith("eval");
      if (isScript) sent += 1;
      // Both calls by digest are refused. The first is resent by its text, which Redis forgets before the second is.
      if (isScript && sent === 4) redis.call("SCRIPT", "FLUSH").catch(() => undefined);
      return send(command, stream);
    };

    const reasons: unknown[] = [];
    // On a busy machine the answers may come apart, and then the second is resent by its text as well.
    await waitUntil(async () => {
      await redis.script("FLUSH");
      sent = 0;
      const calls = await Promise.allSettled([count.call(redis, "a"), count.call(redis, "a")]);
      for (const call of calls) if (call.status === "rejected") reasons.push(call.reason);
      return reasons.length > 0;
    }, "one is refused");

    expect(String(reasons[0])).toContain("NOSCRIPT");
  });
});
