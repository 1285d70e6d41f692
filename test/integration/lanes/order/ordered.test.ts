import { Queue as BullQueue } from "bullmq";
import { Redis } from "ioredis";
import { describe, expect, inject, it } from "vitest";
import { inTurn, orderedWorkers } from "../../../support/jobs/ordered-workers.ts";
import { waitUntil } from "../../../support/async/wait-until.ts";

const workers = orderedWorkers();

const upTo = (count: number): string[] =>
  Array.from({ length: count }, (_, index) => `job ${index} `);

/** Does something with the queue as BullMQ's own tools do. */
async function withTool(work: (tool: BullQueue) => Promise<unknown>): Promise<void> {
  const connection = new Redis(inject("redisUrl"), { maxRetriesPerRequest: null });
  const tool = new BullQueue("{jobs}", { prefix: workers.prefix, connection });
  await work(tool);
  await tool.close();
  await connection.quit();
}

describe("the jobs of an ordered key", () => {
  it("begin one after another in order, in four processes and with retries, and independently of other keys", async () => {
    const queue = workers.open(true);
    const names = upTo(60);
    const retried = (name: string): boolean => /[37] $/.test(name);
    const data = names.map((name) => ({ name, fails: retried(name) ? 1 : 0, retryMs: 30 }));
    await queue.enqueueMany([{ name: "blocked ", until: "open" }, { name: "next " }], {
      key: "other",
    });
    await queue.enqueueMany(data, { key: "acme" });

    await workers.start(4, true);
    await workers.until("acme", "job 59 1 end");
    await workers.release("open");
    await workers.until("other", "next 1 end");

    const all = names.flatMap((name) => (retried(name) ? [`${name}1`, `${name}2`] : [`${name}1`]));
    expect(await workers.story("acme")).toEqual(inTurn(...all));
    expect(await workers.story("other")).toEqual(inTurn("blocked 1", "next 1"));
    const { done, failed, waiting } = await queue.counts();
    expect({ failed, waiting }).toEqual({ failed: 0, waiting: 0 });
    expect(done).toBeGreaterThanOrEqual(61);
  });

  it("wait until the job of a killed process has run elsewhere", async () => {
    const queue = workers.open(true);
    await queue.enqueueMany([{ name: "a", until: "open" }, { name: "b" }, { name: "c" }], {
      key: "acme",
    });
    await workers.start(2, true);
    await workers.until("acme", "a1 begin");

    await workers.kill("a");
    await waitUntil(async () => (await workers.story("acme")).length === 2, "it runs again");
    await workers.release("open");
    await workers.until("acme", "c1 end");

    expect(await workers.story("acme")).toEqual(["a1 begin", ...inTurn("a1", "b1", "c1")]);
  });

  it.each([
    [
      "a tool has removed the job that waits for its retry",
      (id: string) => withTool((tool) => tool.remove(id)),
    ],
    ["that job was removed", (id: string) => workers.open(true).remove(id)],
    ["that job was cancelled", (id: string) => workers.open(true).cancel(id)],
    ["a tool has removed all that waits", () => withTool((tool) => tool.drain(true))],
  ])("continue once %s", async (_how, remove) => {
    const queue = workers.open(true);
    const [first] = await queue.enqueueMany(
      [{ name: "a", fails: 1, retryMs: 600_000 }, { name: "b" }],
      { key: "acme" },
    );
    await workers.start(2, true);
    await workers.until("acme", "a1 end");
    await waitUntil(async () => (await first!.state()) === "delayed", "it waits for its retry");

    await remove(first!.id);
    await queue.enqueue({ name: "c" }, { key: "acme" });
    await workers.until("acme", "c1 end");

    expect((await workers.story("acme")).filter((step) => step.startsWith("a"))).toEqual(
      inTurn("a1"),
    );
  });

  it("wait behind a job that waits for its retry, even if more urgent, and a delayed one joins when due", async () => {
    const queue = workers.open(true);
    await queue.enqueue({ name: "late" }, { key: "acme", delayMs: 200 });
    await queue.enqueue({ name: "a", fails: 1, retryMs: 600 }, { key: "acme" });
    await queue.enqueue({ name: "b" }, { key: "acme" });
    await workers.start(2, true);
    await workers.until("acme", "a1 begin");
    await queue.enqueue({ name: "urgent" }, { key: "acme", priority: "critical" });
    await workers.until("acme", "late1 end");

    expect(await workers.story("acme")).toEqual(inTurn("a1", "a2", "urgent1", "b1", "late1"));
  });
});

describe("a dead letter of an ordered key", () => {
  const failing = { name: "a", fails: 1 };

  it("lets the next job begin", async () => {
    const queue = workers.open(true);
    await queue.enqueue(failing, { key: "acme", attempts: 1 });
    await queue.enqueue({ name: "b" }, { key: "acme" });

    await workers.start(2, true);
    await workers.until("acme", "b1 end");

    expect(await workers.story("acme")).toEqual(inTurn("a1", "b1"));
  });

  it.each(["replay", "purge"] as const)(
    "blocks its key until %s, if configured",
    async (method) => {
      const ordered = { stuck: "hold" } as const;
      const queue = workers.open(ordered);
      const [first] = await queue.enqueueMany([failing, { name: "b" }], {
        key: "acme",
        attempts: 1,
      });
      await workers.start(2, ordered);
      await waitUntil(async () => (await first!.state()) === "failed", "it is a dead letter");
      // Another key goes on meanwhile, for longer than a lane waits until it is looked at again.
      const others = upTo(12);
      await queue.enqueueMany(
        others.map((name) => ({ name, takesMs: 500 })),
        { key: "other" },
      );
      await workers.until("other", `${others.at(-1)!}1 end`);
      const before = await workers.story("acme");

      await queue[method](first!.id);
      await workers.until("acme", "b1 end");

      expect(before).toEqual(inTurn("a1"));
      const again = method === "replay" ? ["a1"] : [];
      expect(await workers.story("acme")).toEqual(inTurn("a1", ...again, "b1"));
    },
  );
});
