import { Redis } from "ioredis";
import { describe, expect, inject, it } from "vitest";
import { Discard, HandlerTimeoutError, leakyBucket, RetryAfter, tokenBucket } from "sluice";
import { openAtWork } from "../../support/jobs/open-queue.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const sluices = realSluices();

describe("RetryAfter", () => {
  it.each(["thrown", "returned"])("%s retries the job, but not before its time", async (way) => {
    const atMs: number[] = [];
    const { queue } = openAtWork(sluices, async (_job, { attempt }) => {
      atMs.push(Date.now());
      if (attempt > 1) return "done";
      const again = new RetryAfter(300);
      if (way === "thrown") throw again;
      return again;
    });

    // The backoff alone would have it wait for hours.
    const job = await queue.enqueue("a", { backoff: { baseMs: 3_600_000 } });

    expect(await job.finished()).toBe("done");
    expect(atMs[1]! - atMs[0]!).toBeGreaterThanOrEqual(300);
  });

  it("counts as an attempt", async () => {
    const { queue } = openAtWork(sluices, async () => new RetryAfter(1));

    await queue.enqueue("a", { attempts: 3 });
    await waitUntil(async () => (await queue.counts()).failed === 1, "the job has failed");

    expect(await queue.failed()).toMatchObject([{ attempts: 3 }]);
  });
});

describe("Discard", () => {
  it.each(["thrown", "returned"])("%s gives the job up with its reason", async (way) => {
    const { queue } = openAtWork(sluices, async () => {
      const end = new Discard("no such account");
      if (way === "thrown") throw end;
      return end;
    });

    await queue.enqueue("a", { attempts: 5 });
    await waitUntil(async () => (await queue.counts()).failed === 1, "the job has failed");

    expect(await queue.failed()).toMatchObject([{ reason: "no such account", attempts: 1 }]);
  });
});

describe("an error that a handler returns", () => {
  it("is a failed attempt as if it had been thrown, and not a result", async () => {
    const { queue } = openAtWork(sluices, async () => new TypeError("card declined"));

    await queue.enqueue("a", { attempts: 2, backoff: { baseMs: 1 } });
    await waitUntil(async () => (await queue.counts()).failed === 1, "the job has failed");

    expect(await queue.failed()).toMatchObject([{ reason: "card declined", attempts: 2 }]);
  });
});

describe("an UnrecoverableError, as handlers of BullMQ throw it", () => {
  it("gives the job up, whichever copy of BullMQ made it", async () => {
    const { queue } = openAtWork(sluices, async () => {
      throw Object.assign(new Error("no such account"), { name: "UnrecoverableError" });
    });

    await queue.enqueue("a", { attempts: 5 });
    await waitUntil(async () => (await queue.counts()).failed === 1, "the job has failed");

    expect(await queue.failed()).toMatchObject([{ reason: "no such account", attempts: 1 }]);
  });
});

describe("a job that can never start, since the limits have changed", () => {
  const tokens = (capacity: number) => tokenBucket({ capacity, refill: "1/s", unit: "tokens" });

  it.each([
    ["that worked before the change", false],
    ["whose process has drawn since", true],
  ])(
    "fails immediately, and not by attempts that never run, at a worker %s",
    async (_title, hasDrawn) => {
      const [producer, sluice] = [sluices.open(), sluices.open()];
      const limits = [leakyBucket("500/s"), tokens(20)];
      const bucket = sluice.bucket("downstream", { limits });
      const queue = sluice.queue<string>("jobs", { bucket });
      const theirs = producer.queue<string>("jobs", {
        bucket: producer.bucket("downstream", { limits }),
      });
      let calls = 0;

      await theirs.enqueue("a", { cost: { tokens: 10 }, attempts: 5, backoff: { baseMs: 1 } });
      await bucket.configure({ limits: [leakyBucket("500/s"), tokens(5)] });
      if (hasDrawn) await bucket.draw();
      sluice.worker(queue, async () => void (calls += 1));
      await waitUntil(async () => (await queue.counts()).failed === 1, "the job has failed");

      const reason = expect.stringMatching(/^Impossible: .*tokens/) as string;
      expect(await queue.failed()).toMatchObject([{ reason, attempts: 1 }]);
      expect(calls).toBe(0);
    },
  );

  it("runs if they have changed again, or no longer count its unit", async () => {
    const sluice = sluices.open();
    const bucket = sluice.bucket("downstream", { limits: [leakyBucket("500/s"), tokens(20)] });
    const queue = sluice.queue<string>("jobs", { bucket });
    const [first, second] = await queue.enqueueMany(["a", "b"], { cost: { tokens: 10 } });
    await bucket.configure({ limits: [leakyBucket("500/s"), tokens(5)] });
    await bucket.draw();
    await bucket.configure({ limits: [leakyBucket("500/s")] });
    const worker = sluice.worker(queue, async ({ data }) => data);

    expect(await Promise.all([first!.finished(), second!.finished()])).toEqual(["a", "b"]);
    await worker.close();
  });

  it("waits while the application cannot compute the limits of its key, and uses no attempt", async () => {
    const sluice = sluices.open();
    let asked = 0;
    const perKey = () => {
      asked += 1;
      if (asked === 2) throw new Error("the table of tiers is away");
      return { rate: "500/s" };
    };
    const bucket = sluice.bucket("downstream", { rate: "500/s", perKey });
    const queue = sluice.queue<string>("jobs", { bucket });
    const job = await queue.enqueue("a", { key: "k", attempts: 1 });
    sluice.worker(queue, async (_job, { attempt }) => attempt);

    expect(await job.finished()).toBe(1);
    expect(asked).toBeGreaterThan(2);
  });
});

describe("a Retry-After of the downstream", () => {
  const limited = (): Error =>
    Object.assign(new Error("429"), {
      response: { status: 429, headers: { "retry-after-ms": "400" } },
    });

  it("delays the retry at least as long, and cools the bucket down for all", async () => {
    const atMs: number[] = [];
    const { queue } = openAtWork(sluices, async (job, { attempt }) => {
      if (job.data === "other") return "other";
      atMs.push(Date.now());
      if (attempt === 1) throw limited();
      return "done";
    });

    const job = await queue.enqueue("a", { backoff: { baseMs: 1 } });
    await waitUntil(() => atMs.length === 1, "it was refused");
    const result = await job.finished();

    expect(result).toBe("done");
    expect(atMs[1]! - atMs[0]!).toBeGreaterThanOrEqual(400);
  });

  it("is limited by maxCooldownMs", async () => {
    const { queue } = openAtWork(
      sluices,
      async (_job, { attempt }) => {
        const headers = { "retry-after": "86400" };
        if (attempt === 1) throw Object.assign(new Error("503"), { status: 503, headers });
        return "done";
      },
      { policy: { maxCooldownMs: 50 } },
    );

    const job = await queue.enqueue("a", { backoff: { baseMs: 1 } });

    expect(await job.finished()).toBe("done");
  });
});

describe("a handler that never ends", () => {
  it("is aborted through its signal at timeoutMs, and the attempt counts as failed", async () => {
    const reasons: unknown[] = [];
    const { queue } = openAtWork(
      sluices,
      (_job, { signal }) =>
        new Promise(() => {
          signal.addEventListener("abort", () => reasons.push(signal.reason));
        }),
      { options: { timeoutMs: 50 } },
    );

    await queue.enqueue("a", { attempts: 2, backoff: { baseMs: 1 } });
    await waitUntil(async () => (await queue.counts()).failed === 1, "the job has failed");

    expect(reasons).toHaveLength(2);
    expect(reasons[0]).toBeInstanceOf(HandlerTimeoutError);
    const reason = expect.stringMatching(/^The handler took longer than 50 ms/) as string;
    expect(await queue.failed()).toMatchObject([{ reason, attempts: 2 }]);
  });

  it("makes room for the next job", async () => {
    const { queue } = openAtWork(
      sluices,
      (job) => (job.data === "next" ? Promise.resolve("done") : new Promise(() => {})),
      { options: { timeoutMs: 50, concurrency: 1 } },
    );

    await queue.enqueue("endless", { attempts: 1 });
    const next = await queue.enqueue("next");

    expect(await next.finished()).toBe("done");
  });
});

describe("a schema that never returns", () => {
  it("fails the attempt at timeoutMs, which makes room for the next job", async () => {
    let hangs = false;
    const validate = (value: unknown) =>
      hangs && value === "endless" ? new Promise<never>(() => {}) : { value: value as string };
    const schema = { "~standard": { version: 1, vendor: "test", validate } } as const;
    const sluice = sluices.open();
    const bucket = sluice.bucket("downstream", { rate: "500/s", concurrency: 1 });
    const queue = sluice.queue("jobs", { bucket, schema });
    const endless = await queue.enqueue("endless", { attempts: 2, backoff: { baseMs: 1 } });
    const next = await queue.enqueue("next");
    const handled: string[] = [];

    hangs = true;
    const options = { timeoutMs: 50, concurrency: 1 };
    sluice.worker(queue, (job) => void handled.push(job.data), options);
    await next.finished();
    await waitUntil(async () => (await endless.state()) === "failed", "both attempts have failed");

    const reason = expect.stringContaining("longer than 50 ms") as string;
    expect(await queue.failed()).toMatchObject([{ reason, attempts: 2 }]);
    expect(handled).toEqual(["next"]);
  });
});

describe("a handler that continues after timeoutMs", () => {
  it("has given its lease back, so that no hanging handler blocks a bucket", async () => {
    const seen: string[] = [];
    const { queue } = openAtWork(
      sluices,
      async ({ data }) => {
        seen.push(data);
        if (data === "hangs") await new Promise(() => {});
      },
      { options: { timeoutMs: 50 }, policy: { concurrency: 1 } },
    );

    await queue.enqueue("hangs", { attempts: 1 });
    const next = await queue.enqueue("next");
    await next.finished();

    expect(seen).toEqual(["hangs", "next"]);
  });
});

describe("a handler whose error or result cannot be stored", () => {
  it.each([
    ["an object without a prototype", Object.create(null) as object, "The handler threw"],
    ["a symbol", Symbol("no"), "The handler threw Symbol(no)"],
    ["an error with a message of a megabyte", new Error("x".repeat(1_000_000)), "xxx"],
    ["an error whose message is no text", Object.assign(new Error(), { message: 5 }), "5"],
  ])("fails its attempt by %s, with a limited reason", async (_name, thrown, begin) => {
    const { queue } = openAtWork(sluices, async () => {
      throw thrown;
    });

    await queue.enqueue("a", { attempts: 1 });
    await waitUntil(async () => (await queue.counts()).failed === 1, "the job has failed");
    const [failed] = await queue.failed();

    expect(failed!.reason.startsWith(begin)).toBe(true);
    expect(failed!.reason.length).toBeLessThanOrEqual(10_001);
  });

  it("keeps only the stack of the last attempt, up to the length of a reason", async () => {
    const { queue } = openAtWork(sluices, async () => {
      const error = new Error("no");
      error.stack = `Error: no\n${"    at deep (down.js)\n".repeat(100_000)}`;
      throw error;
    });
    const redis = new Redis(inject("redisUrl"));

    const job = await queue.enqueue("a", { attempts: 3, backoff: { baseMs: 1 } });
    await waitUntil(async () => (await queue.counts()).failed === 1, "the job has failed");
    const stored = (await redis.hget(`${sluices.prefix()}:{jobs}:${job.id}`, "stacktrace"))!;
    const [failed] = await queue.failed();

    expect(JSON.parse(stored)).toHaveLength(1);
    expect(failed).toMatchObject({ reason: "no", attempts: 3 });
    expect(failed!.stack).toMatch(/^Error: no\n {4}at deep/);
    expect(failed!.stack!.length).toBeLessThanOrEqual(10_001);
    await redis.quit();
  });

  it.each([
    ["a BigInt", 1n],
    ["more than a million characters", "x".repeat(1_000_000)],
  ])("is done once, without its result: %s", async (_name, result) => {
    let tries = 0;
    const { queue } = openAtWork(sluices, async () => {
      tries += 1;
      return result;
    });

    const job = await queue.enqueue("a");

    expect(await job.finished()).toBe(null);
    expect(tries).toBe(1);
  });
});
