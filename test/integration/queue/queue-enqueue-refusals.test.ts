import { Redis } from "ioredis";
import { describe, expect, inject, it } from "vitest";
import { InvalidOptionError } from "sluice";
import { openQueue, openTokenQueue } from "../../support/jobs/open-queue.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { rejectionOf } from "../../support/async/rejection.ts";

const sluices = realSluices();

describe("options that can never work", () => {
  it.each([
    [{ at: 1.8e12, delayMs: 1 }, "at"],
    [{ at: 1_800_000_000 }, "at"],
    [{ at: new Date(Number.NaN) }, "at"],
    [{ at: Date.UTC(2040) }, "at"],
    [{ dedupeMs: 5 }, "dedupeMs"],
    [{ maxWaitMs: 0 }, "maxWaitMs"],
    [{ cost: 0 }, "cost"],
    [{ backoff: { maxMs: 0 } }, "backoff.maxMs"],
    [{ every: 1_000 }, "dedupeId"],
    [{ every: 1_000, dedupeId: "a:b" }, "dedupeId"],
    [{ every: 1_000, cron: "* * * * *", dedupeId: "a" }, "cron"],
    [{ cron: "no cron", dedupeId: "a" }, "cron"],
    [{ cron: "", dedupeId: "a" }, "cron"],
    [{ cron: " ", dedupeId: "a" }, "cron"],
    [{ cron: "0 0 30 2 *", dedupeId: "a" }, "cron"],
    [{ cron: "* * * * *", timeZone: "Mars/Olympus", dedupeId: "a" }, "timeZone"],
    [{ every: 1_000, timeZone: "UTC", dedupeId: "a" }, "timeZone"],
    [{ every: 1_000, dedupeId: "a", delayMs: 5 }, "delayMs"],
    [{ every: 1_000, dedupeId: "a", dedupeMs: 5 }, "dedupeMs"],
    [{ deadlineMs: 5 }, "deadlineMs"],
  ])("are refused: %j", async (options, option) => {
    const { queue } = openTokenQueue<number>(sluices);

    const reason = await rejectionOf(queue.enqueue(1, options as object));

    expect(reason).toBeInstanceOf(InvalidOptionError);
    expect(reason).toMatchObject({ option });
  });
});

describe("options that come as a promise", () => {
  it.each([
    ["resolves", async (key: string) => ({ key })],
    ["rejects", async (key: string) => Promise.reject(new Error(key))],
  ])("that %s are refused, and no job is stored", async (_what, promised) => {
    const { queue } = openTokenQueue<string>(sluices);

    const reasons = [
      await rejectionOf(queue.enqueue("a", promised("a") as never)),
      await rejectionOf(queue.enqueueMany(["a", "b"], promised("a") as never)),
      await rejectionOf(queue.enqueueMany(["a", "b"], promised as never)),
    ];

    for (const reason of reasons) {
      expect(reason).toBeInstanceOf(InvalidOptionError);
      expect(reason).toMatchObject({ option: "options" });
      expect((reason as Error).message).toContain("not a promise of one");
    }
    expect(await queue.forecast()).toMatchObject({ waiting: 0 });
  });
});

describe("a job's size", () => {
  it("is bounded by maxJobBytes, and the error names both and the remedy", async () => {
    const { queue } = openTokenQueue<string>(sluices, { maxJobBytes: 100 });

    await queue.enqueue("x".repeat(98));
    const reason = await rejectionOf(queue.enqueue("ü".repeat(50)));

    expect(reason).toMatchObject({ code: "ERR_INVALID_OPTION", option: "data" });
    expect((reason as Error).message).toContain("102 bytes of JSON, and at most 100");
    expect((reason as Error).message).toContain("maxJobBytes");
  });

  it("is limited to a million bytes by default", async () => {
    const { queue } = openTokenQueue<string>(sluices);

    await queue.enqueue("x".repeat(999_998));
    const reason = await rejectionOf(queue.enqueue("x".repeat(999_999)));

    expect(reason).toBeInstanceOf(InvalidOptionError);
  });
});

describe("an option that BullMQ does not have", () => {
  it("is stored under one key of the job's options, and only when it is given", async () => {
    const { queue } = openTokenQueue<string>(sluices);
    const redis = new Redis(inject("redisUrl"));
    const optionsOf = async (id: string): Promise<unknown> =>
      JSON.parse((await redis.hget(`${sluices.prefix()}:{jobs}:${id}`, "opts"))!);

    const plain = await queue.enqueue("plain");
    const costly = await queue.enqueue("costly", {
      cost: { tokens: 2 },
      backoff: { maxMs: 9_000 },
    });

    expect(await optionsOf(plain.id)).toEqual({ attempts: 0, priority: 3 });
    expect(await optionsOf(costly.id)).toMatchObject({
      sluice: { cost: { tokens: 2 }, maxBackoffMs: 9_000 },
    });
    await redis.quit();
  });
});

describe("one rejected job among many", () => {
  it.each([
    ["its data", [1, undefined, 3], {}],
    ["its options", [1, 2, 3], (data: unknown) => ({ key: data === 2 ? "" : "acme" })],
  ])("is identified by its index: for %s", async (_which, data, options) => {
    const { queue } = openQueue<unknown>(sluices);

    const reason = await rejectionOf(queue.enqueueMany(data, options));

    expect(reason).toBeInstanceOf(InvalidOptionError);
    expect((reason as Error).message).toContain("enqueueMany()[1]: ");
    expect((await queue.counts()).waiting).toBe(0);
  });
});
