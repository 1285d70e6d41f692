import { describe, expect, it } from "vitest";
import { HandlerTimeoutError, InvalidOptionError, JobFailedError } from "sluice";
import { rejectionOf } from "../../support/async/rejection.ts";
import { openQueue } from "../../support/jobs/open-queue.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();

describe("handlers by the names of jobs", () => {
  it("each get the jobs of their name, and default all others", async () => {
    const { sluice, queue } = openQueue<number>(sluices);
    sluice.worker(queue, {
      charge: ({ data }) => `charged ${data}`,
      default: async ({ name }, { attempt }) => `${name}, attempt ${attempt}`,
    });

    const jobs = [
      await queue.enqueue(1, { name: "charge" }),
      await queue.enqueue(2, { name: "refund" }),
      await queue.enqueue(3, { name: "toString" }),
      await queue.enqueue(4),
    ];

    expect(await Promise.all(jobs.map((job) => job.finished()))).toEqual([
      "charged 1",
      "refund, attempt 1",
      "toString, attempt 1",
      "undefined, attempt 1",
    ]);
  });

  it.each([
    ["of another name", "refund", 'jobs named "refund"'],
    ["named as a property of objects", "constructor", 'jobs named "constructor"'],
    ["without a name", undefined, "jobs without a name"],
  ])("keep a job %s as a dead letter, without a slot, and say so", async (_what, name, which) => {
    const errors: string[] = [];
    const logger = { warn: () => {}, error: (_facts: object, text: string) => errors.push(text) };
    const { sluice, queue } = openQueue<number>(sluices, { rate: "1/h", logger });
    sluice.worker(queue, { charge: () => "charged" });
    await (await queue.enqueue(1, { name: "charge" })).finished();

    const job = await queue.enqueue(2, { name, attempts: 5 });

    expect(await rejectionOf(job.finished())).toBeInstanceOf(JobFailedError);
    const what = `its worker has none for ${which}, only for charge`;
    const reason = `No handler: ${what}; deploy one that has, and replay it`;
    expect(await queue.failed()).toMatchObject([{ id: job.id, reason, attempts: 1 }]);
    expect(errors.filter((text) => text.includes(job.id))).toEqual([
      expect.stringContaining(`${reason}; kept as a dead letter`),
    ]);
    expect(errors).toHaveLength(1);
  });

  it("are refused if there are none, or one is no function", () => {
    const { sluice, queue } = openQueue<number>(sluices);
    const start = (handlers: unknown) => () => sluice.worker(queue, handlers as never);

    expect(start({})).toThrow(InvalidOptionError);
    expect(start({ charge: "charge.js" })).toThrow("handler.charge");
    expect(start([])).toThrow(InvalidOptionError);
    expect(start([async () => {}])).toThrow("give one function, or { name: handler }");
    expect(start(null)).toThrow(InvalidOptionError);
  });
});

describe("the timeoutMs of a job", () => {
  it("counts before that of its worker, whether it is shorter or longer", async () => {
    const { sluice, queue } = openQueue<number>(sluices);
    const reasons: unknown[] = [];
    const once = { attempts: 1 };
    sluice.worker(
      queue,
      async (_job, { signal }) => {
        await new Promise((resolve) => signal.addEventListener("abort", resolve));
        reasons.push(signal.reason);
      },
      { timeoutMs: 500 },
    );

    const short = await queue.enqueue(1, { ...once, timeoutMs: 100 });
    await rejectionOf(short.finished());
    const usual = await queue.enqueue(2, once);
    await rejectionOf(usual.finished());
    const long = await queue.enqueue(3, { ...once, timeoutMs: 900 });
    await rejectionOf(long.finished());

    expect(reasons.every((reason) => reason instanceof HandlerTimeoutError)).toBe(true);
    expect(reasons.map((reason) => (reason as HandlerTimeoutError).timeoutMs)).toEqual([
      100, 500, 900,
    ]);
  });
});
