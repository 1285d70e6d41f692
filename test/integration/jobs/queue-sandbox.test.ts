import process from "node:process";
import { beforeEach, describe, expect, it, vi } from "vitest";
import { InvalidOptionError, leakyBucket, tokenBucket, type WorkerOptions } from "sluice";
import { useBuiltSandbox } from "../../support/children/built-sandbox.ts";
import { isRunning } from "../../support/children/is-running.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const HANDLER = new URL("../../support/handlers/many-ways.mjs", import.meta.url);

const sluices = realSluices();
beforeEach(useBuiltSandbox);

/** A queue whose handler is a file, in one process of its own. */
function openQueue(options: WorkerOptions = {}) {
  const sluice = sluices.open();
  const limits = [
    leakyBucket("500/s"),
    tokenBucket({ capacity: 100, refill: "1/min", unit: "tokens" }),
  ];
  const bucket = sluice.bucket("downstream", { limits });
  const queue = sluice.queue<{ do: string }>("jobs", { bucket });
  const worker = sluice.worker(queue, HANDLER, { concurrency: 1, ...options });
  return { sluice, bucket, queue, worker };
}

describe("a handler in a file", () => {
  it("gets the results of its job's parents", async () => {
    const { queue } = openQueue();
    const parent = await queue.enqueue({ do: "pid" });
    const child = await queue.enqueue({ do: "parents" }, { after: [parent] });

    const [outcome] = await child.finished<{ result: number }[]>();
    expect(outcome).toMatchObject({ queue: "jobs", id: parent.id, state: "done" });
    expect(outcome!.result).toBe(await parent.finished());
  });

  it("gets its job and context like a function, in a process that is kept for the next job", async () => {
    const { queue } = openQueue();
    const given = await queue.enqueue({ do: "echo" }, { key: "acme", priority: "high" });

    const echoed = await given.finished<{ job: object; attempt: number; bucket: string }>();
    const pids = await queue.enqueueMany([{ do: "pid" }, { do: "pid" }]);
    const [first, second] = await Promise.all(pids.map((job) => job.finished<number>()));

    const facts = { id: given.id, data: { do: "echo" }, key: "acme", priority: "high" };
    expect(echoed).toMatchObject({ job: facts, attempt: 1, bucket: "downstream" });
    expect(first).not.toBe(process.pid);
    expect(second).toBe(first);
  });

  it("logs, reports its progress, and settles the actual cost of the call", async () => {
    const { bucket, queue } = openQueue();

    const told = await queue.enqueue({ do: "tell" });
    await told.finished();
    await (await queue.enqueue({ do: "settle" }, { cost: { tokens: 1 } })).finished();

    expect(await told.logs()).toEqual(["one line"]);
    expect(await told.progress()).toEqual({ part: 0.5 });
    await waitUntil(
      async () => (await bucket.peek()).limits[1]!.level >= 89,
      "the cost is settled",
    );
  });

  it("may send its parent messages that are meant for others", async () => {
    const { queue } = openQueue();

    const job = await queue.enqueue({ do: "tellStrangers" }, { attempts: 1 });

    expect(await job.finished()).toBe("done");
    expect(await job.logs()).toEqual([]);
  });

  it.each([
    ["throw", "the downstream says no"],
    ["throwNothing", "The handler threw undefined"],
    ["discard", "no such account"],
  ])("fails its job by what it does: %s", async (way, reason) => {
    const { queue } = openQueue();

    const job = await queue.enqueue({ do: way }, { attempts: 1 });
    await waitUntil(async () => (await job.state()) === "failed", "the job has failed");

    expect(await queue.failed()).toMatchObject([{ id: job.id, reason }]);
  });

  it("is given up immediately by Discard, and retried by RetryAfter", async () => {
    const { queue } = openQueue();

    const discarded = await queue.enqueue({ do: "discard" }, { attempts: 5 });
    const retried = await queue.enqueue({ do: "retryAfter" }, { attempts: 2 });
    const result = await retried.finished();
    await waitUntil(async () => (await discarded.state()) === "failed", "it is given up");

    expect(result).toBe("second try");
    expect(await queue.failed()).toMatchObject([{ id: discarded.id, attempts: 1 }]);
  });

  it("fails its attempt by an error that it returns", async () => {
    const { queue } = openQueue();

    const job = await queue.enqueue({ do: "returnError" }, { attempts: 1 });
    await waitUntil(async () => (await job.state()) === "failed", "it has failed");

    expect(await queue.failed()).toMatchObject([{ id: job.id, reason: "card declined" }]);
  });

  it("cools the bucket down when its error contains the downstream's retry time", async () => {
    const { bucket, queue } = openQueue();

    const job = await queue.enqueue({ do: "limited" });
    await waitUntil(async () => (await bucket.peek()).coolingForMs > 0, "the bucket cools down");

    expect((await bucket.peek()).coolingForMs).toBeGreaterThan(600_000);
    await waitUntil(async () => (await job.state()) === "delayed", "the job waits as long");
  });

  it("cools until the end of the day when its error says that a daily quota is used up", async () => {
    const { bucket, queue } = openQueue();

    await queue.enqueue({ do: "dayIsUsedUp" });
    await waitUntil(async () => (await bucket.peek()).coolingForMs > 0, "the bucket cools down");

    const { coolingForMs } = await bucket.peek();
    const overAt = new Date(Date.now() + coolingForMs + 30_000);
    expect([overAt.getUTCHours(), overAt.getUTCMinutes()]).toEqual([0, 0]);
  });

  it("cools no key when its error says that an account is out of quota", async () => {
    const { bucket, queue } = openQueue();

    const job = await queue.enqueue({ do: "outOfQuota" }, { attempts: 1 });
    await rejectionOf(job.finished());

    expect((await bucket.peek()).coolingForMs).toBe(0);
  });

  it.each(["nothing", "cycle"])("is done once, when its result is %s", async (way) => {
    const { queue } = openQueue();

    const job = await queue.enqueue({ do: way }, { attempts: 1 });

    expect(await job.finished()).toBe(null);
  });

  it("is retried in another process when its process is killed", async () => {
    const { queue } = openQueue();

    const job = await queue.enqueue({ do: "dieOnce" }, { attempts: 2, backoff: { baseMs: 1 } });

    expect(await job.finished()).toBe(2);
  });

  it("that never ends is ended with its process at timeoutMs", async () => {
    const { queue } = openQueue({ timeoutMs: 300 });

    const job = await queue.enqueue({ do: "loop" }, { attempts: 2, backoff: { baseMs: 1 } });

    expect(await job.finished()).toBe(2);
  });
});

describe("a worker whose handler is a file, when it is closed", () => {
  it("leaves no process behind", async () => {
    const { queue, worker } = openQueue();
    const pid = await (await queue.enqueue({ do: "pid" })).finished<number>();

    await worker.close();

    expect(isRunning(pid)).toBe(false);
  });

  it("cuts a handler off at the deadline, whose job another worker then does", async () => {
    const { queue, worker } = openQueue({ lockMs: 1_000 });
    const job = await queue.enqueue({ do: "untilAborted" }, { attempts: 1 });
    await waitUntil(async () => (await job.logs()).length > 0, "the handler runs");

    await worker.close({ deadlineMs: 10 });
    const other = sluices.open();
    const bucket = other.bucket("downstream", { rate: "500/s" });
    const attempts: number[] = [];
    other.worker(
      other.queue("jobs", { bucket }),
      async (_job, { attempt }) => void attempts.push(attempt),
      { lockMs: 1_000 },
    );
    await waitUntil(() => attempts.length > 0, "another worker has done the job");

    expect(attempts).toEqual([1]);
  });
});

describe("an invalid handler file", () => {
  it.each(["no/such/file.js", "test", "file:///no/such/file.js", "", 5])(
    "is refused at once: %s",
    (given) => {
      const sluice = sluices.open();
      const queue = sluice.queue("jobs", { bucket: sluice.bucket("b", { rate: "5/s" }) });

      const start = (): unknown => sluice.worker(queue, given as string);

      expect(start).toThrow(InvalidOptionError);
      expect(start).toThrow('option "handler"');
    },
  );

  it.each(["no/such/file.js", new URL("file:///no/such/file.js"), "test"])(
    "is refused with the position of the mistake: %s",
    (given) => {
      const sluice = sluices.open();
      const queue = sluice.queue("jobs", { bucket: sluice.bucket("b", { rate: "5/s" }) });

      const start = (): unknown => sluice.worker(queue, given);

      expect(start).toThrow(/there is no file at \/.*(no\/such\/file\.js|\/test);/);
    },
  );

  it("without an export fails the attempts of its jobs with the reason", async () => {
    vi.spyOn(console, "error").mockImplementation(() => {});
    const errors: string[] = [];
    const logger = { warn: () => {}, error: (_facts: object, text: string) => errors.push(text) };
    const sluice = sluices.open({ logger });
    const queue = sluice.queue("jobs", { bucket: sluice.bucket("b", { rate: "50/s" }) });
    sluice.worker(queue, "test/support/async/wait-until.ts", { concurrency: 1 });

    const job = await queue.enqueue("any", { attempts: 1 });
    const reason = await rejectionOf(job.finished());

    expect((reason as Error).message).toContain("no function as its default export");
    expect(errors.join()).toContain("no function as its default export");
    vi.restoreAllMocks();
  });
});
