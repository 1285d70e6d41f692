import { describe, expect, it } from "vitest";
import { RetryAfter, type Job } from "sluice";
import { openTokenQueue } from "../../support/jobs/open-queue.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { rejectionOf } from "../../support/async/rejection.ts";

const sluices = realSluices();

describe("a job's name and time limit", () => {
  it.each([
    ["without a key", {}],
    ["in a lane", { key: "acme" }],
    ["that is delayed", { delayMs: 10 }],
  ])("are stored with it, and its handler gets them: a job %s", async (_which, where) => {
    const { sluice, queue } = openTokenQueue<string>(sluices);
    const seen: Job<string>[] = [];
    sluice.worker(queue, async (job) => void seen.push(job));

    const given = await queue.enqueue("a", { name: "mail: welcome", timeoutMs: 5_000, ...where });
    await given.finished();
    const read = await queue.job(given.id);

    const facts = { name: "mail: welcome", timeoutMs: 5_000 };
    for (const job of [given, seen[0], read]) expect(job).toMatchObject(facts);
  });

  it("are undefined unless given to enqueue, and runs of a schedule have them too", async () => {
    const { sluice, queue } = openTokenQueue<string>(sluices);
    const seen: Job<string>[] = [];
    const first = await queue.enqueue("plain");
    const run = await queue.enqueue("run", { every: 60_000, dedupeId: "a", name: "report" });

    sluice.worker(queue, async (job) => void seen.push(job));
    await Promise.all([first.finished(), run.finished()]);

    expect(seen.map(({ name }) => name)).toEqual([undefined, "report"]);
    expect(seen.map(({ timeoutMs }) => timeoutMs)).toEqual([undefined, undefined]);
  });

  it.each([
    [{ name: "" }, "name"],
    [{ name: "a\nb" }, "name"],
    [{ name: "x".repeat(257) }, "name"],
    [{ name: 5 }, "name"],
    [{ timeoutMs: 0 }, "timeoutMs"],
    [{ timeoutMs: Infinity }, "timeoutMs"],
  ])("are refused by name if they cannot work: %j", async (options, option) => {
    const { queue } = openTokenQueue<string>(sluices);

    const reason = await rejectionOf(queue.enqueue("a", options as object));

    expect(reason).toMatchObject({ code: "ERR_INVALID_OPTION", option });
  });
});

describe("a job's attempts, dedupeId and result", () => {
  it.each([
    ["without a key", {}],
    ["in a lane", { key: "acme" }],
    ["that is the newest of its dedupeId", { dedupe: "last" }],
    ["that runs after another", { dedupe: "again" }],
    ["that is one for a time", { dedupeMs: 60_000 }],
  ] as const)(
    "are visible to its producer, to its handler and to readers: a job %s",
    async (_which, options) => {
      const { sluice, queue } = openTokenQueue<string>(sluices);
      const seen: Job<string>[] = [];
      const given = await queue.enqueue("a", { attempts: 7, dedupeId: "document 1", ...options });
      const second = await queue.enqueue("b", { attempts: 7, dedupeId: "document 1", ...options });

      sluice.worker(queue, async (job) => {
        seen.push(job);
        if (job.attemptsMade === 0) throw new RetryAfter(1);
        return { pages: 3 };
      });
      await given.finished();
      const read = await queue.job(given.id);

      const facts = { attempts: 7, dedupeId: "document 1" };
      for (const job of [given, second, ...seen, read]) expect(job).toMatchObject(facts);
      expect(given.result).toBeUndefined();
      expect(read!.result).toEqual({ pages: 3 });
      expect(read!.attempts - read!.attemptsMade).toBe(5);
    },
  );

  it("have the defaults of the queue, and runs of a recurring job have its name", async () => {
    const { sluice, queue } = openTokenQueue<string>(sluices);
    const plain = await queue.enqueue("plain");
    const run = await queue.enqueue("run", { every: 60_000, dedupeId: "hourly" });
    const seen: Job<string>[] = [];

    sluice.worker(queue, async (job) => void seen.push(job));
    await Promise.all([plain.finished(), run.finished()]);
    const [done] = (await queue.jobs({ state: "done" })).jobs.filter(({ id }) => id === plain.id);

    for (const job of [plain, ...seen, done]) expect(job).toMatchObject({ attempts: 20 });
    expect([plain.dedupeId, run.dedupeId]).toEqual([undefined, "hourly"]);
    expect(new Set(seen.map(({ dedupeId }) => dedupeId))).toEqual(new Set(["hourly", undefined]));
    expect(done!.result).toBeUndefined();
  });

  it("have no result for a failed job", async () => {
    const { sluice, queue } = openTokenQueue<string>(sluices);
    const job = await queue.enqueue("a", { attempts: 1 });
    sluice.worker(queue, async () => {
      throw new Error("no");
    });
    await rejectionOf(job.finished());

    expect(await queue.job(job.id)).toMatchObject({ result: undefined, attempts: 1 });
  });
});

describe("a job's times", () => {
  it.each([
    ["without a key", {}],
    ["in a lane", { key: "acme" }],
  ])("show when it came, was due, started and ended: a job %s", async (_which, where) => {
    const { sluice, queue } = openTokenQueue<string>(sluices);
    const given = await queue.enqueue("a", { delayMs: 40, ...where });
    const seen: Job<string>[] = [];

    sluice.worker(queue, async (job) => {
      seen.push(job);
      if (seen.length === 1) throw new RetryAfter(5);
    });
    await given.finished();
    const ended = (await queue.job(given.id))!;

    const { enqueuedAtMs } = given;
    expect(given).toMatchObject({
      dueAtMs: enqueuedAtMs + 40,
      startedAtMs: undefined,
      endedAtMs: undefined,
      attemptsMade: 0,
    });
    expect(seen.map(({ attemptsMade }) => attemptsMade)).toEqual([0, 1]);
    for (const job of seen) {
      expect(job).toMatchObject({ enqueuedAtMs, dueAtMs: enqueuedAtMs + 40, endedAtMs: undefined });
      expect(job.startedAtMs).toBeGreaterThanOrEqual(enqueuedAtMs + 40);
    }
    expect(ended).toMatchObject({ attemptsMade: 2, startedAtMs: seen[1]!.startedAtMs });
    expect(ended.endedAtMs).toBeGreaterThanOrEqual(ended.startedAtMs!);
  });

  it("of an immediate job are equal, with a key or without", async () => {
    const { queue } = openTokenQueue<string>(sluices);

    for (const key of [undefined, "acme"]) {
      const { id, enqueuedAtMs, dueAtMs } = await queue.enqueue("a", { key });

      expect(dueAtMs).toBe(enqueuedAtMs);
      expect(await queue.job(id)).toMatchObject({ enqueuedAtMs, dueAtMs });
    }
  });
});
