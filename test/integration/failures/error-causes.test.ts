import { beforeEach, describe, expect, it } from "vitest";
import {
  Discard,
  type ErrorFacts,
  type FailureFacts,
  type JobFailedError,
  type QueueEvents,
} from "sluice";
import { useBuiltSandbox } from "../../support/children/built-sandbox.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { openQueue } from "../../support/jobs/open-queue.ts";
import { closedUrl } from "../../support/servers/closed-url.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const ONCE = { attempts: 1 };

async function failWith(thrown: unknown) {
  const opened = openQueue<number>(sluices);
  const job = await opened.queue.enqueue(1, ONCE);
  const worker = opened.sluice.worker(opened.queue, async () => {
    throw thrown;
  });
  const error = (await rejectionOf(job.finished())) as JobFailedError;
  const letters = await opened.queue.failed();
  await worker.close();
  return { error, letter: letters.find(({ id }) => id === job.id)! };
}

describe("the cause of a job's failure", () => {
  it('is not lost behind "fetch failed": it is in the dead letter, in finished() and in filters', async () => {
    const url = await closedUrl();
    const { sluice, queue } = openQueue<number>(sluices);
    const job = await queue.enqueue(1, ONCE);
    sluice.worker(queue, () => fetch(url));
    const error = (await rejectionOf(job.finished())) as JobFailedError;
    const [letter] = await queue.failed({ code: "ECONNREFUSED" });

    const refused = { code: "ECONNREFUSED", message: expect.stringContaining("ECONNREFUSED") };
    expect(letter).toMatchObject({ id: job.id, cause: refused });
    expect(letter!.reason).toContain("ECONNREFUSED");
    expect(error.cause).toMatchObject({ cause: refused });
    expect(error.cause).toBeInstanceOf(Error);
    expect(await queue.failed({ code: "ENOTFOUND" })).toEqual([]);
    expect(await queue.failed({ reason: "connect ECONNREFUSED" })).toHaveLength(1);
    expect(await queue.purge({ code: "ENOTFOUND" })).toBe(0);
    expect(await queue.replay({ code: "ECONNREFUSED" })).toBe(1);
  });

  it("is in finished() also after the failure, and is replaced by that of the next failure", async () => {
    const { sluice, queue } = openQueue<number>(sluices);
    let thrown: unknown = Object.assign(new Error("one"), { code: "E_ONE", status: 500 });
    const job = await queue.enqueue(1, ONCE);
    sluice.worker(queue, async () => {
      throw thrown;
    });
    await rejectionOf(job.finished());
    const late = (await rejectionOf((await queue.job(job.id))!.finished())) as JobFailedError;

    thrown = new Error("two");
    await queue.replay(job.id);
    const next = (await rejectionOf(job.finished())) as JobFailedError;
    const [letter] = await queue.failed();

    expect(late.cause).toMatchObject({ message: "one", code: "E_ONE", status: 500 });
    expect(next.cause).toMatchObject({ message: "two" });
    expect(letter).toMatchObject({ reason: "two" });
    expect(letter!.code).toBeUndefined();
  });

  it("is part of the events of a failed attempt and of a dead letter, before later events", async () => {
    const { sluice, queue } = openQueue<number>(sluices);
    const told: (FailureFacts & { event: keyof QueueEvents })[] = [];
    for (const event of ["retrying", "failed", "removed"] as const) {
      queue.on(event, (facts) => void told.push({ event, ...facts }));
    }
    const job = await queue.enqueue(1, { attempts: 2, backoff: { baseMs: 1 } });
    sluice.worker(queue, async () => {
      throw new TypeError("no", { cause: Object.assign(new Error("inner"), { code: "E_INNER" }) });
    });
    await rejectionOf(job.finished());
    await job.remove();
    await queue.purge(job.id);
    await waitUntil(() => told.some(({ event }) => event === "failed"), "the failure is told");

    const cause = { name: "Error", message: "inner", code: "E_INNER" };
    for (const facts of told.filter(({ event }) => event !== "removed")) {
      expect(facts).toMatchObject({ errorName: "TypeError", cause });
    }
    expect(told.map(({ event }) => event).slice(0, 2)).toEqual(["retrying", "failed"]);
  });

  class OutOfStock extends Error {
    override readonly name = "OutOfStock";
  }
  class Declined extends Error {}

  it.each([
    ["an error with a name", new OutOfStock("none left"), "OutOfStock"],
    ["an error whose class alone has one", new Declined("no funds"), "Declined"],
    ["a built-in one", new RangeError("too far"), "RangeError"],
    ["one with a cause", new OutOfStock("none", { cause: new Declined("no") }), "OutOfStock"],
  ])("has the class of the thrown value: %s", async (_what, thrown, name) => {
    const { letter, error } = await failWith(thrown);
    const cause = error.cause as Error;

    expect(letter.errorName).toBe(name);
    expect([cause.name, String(cause)]).toEqual([name, `${name}: ${letter.reason}`]);
    expect(letter.cause?.name).toBe(thrown.cause === undefined ? undefined : "Declined");
  });

  it.each([
    ["a plain error", new Error("no")],
    ["no error", { no: 1 }],
  ])("has no class: %s", async (_what, thrown) => {
    const { letter, error } = await failWith(thrown);

    expect(letter.errorName).toBeUndefined();
    expect((error.cause as Error).name).toBe("Error");
  });

  it("is stored for each address of a host, from an AggregateError", async () => {
    const errors = ["::1", "127.0.0.1"].map((at) =>
      Object.assign(new Error(`connect ECONNREFUSED ${at}`), { code: "ECONNREFUSED" }),
    );
    const { letter, error } = await failWith(
      new TypeError("fetch failed", { cause: new AggregateError(errors) }),
    );

    expect(letter.cause!.name).toBe("AggregateError");
    expect(letter.cause!.errors!.map(({ message }) => message)).toEqual(
      errors.map(({ message }) => message),
    );
    expect((error.cause as Error).cause).toBeInstanceOf(AggregateError);
  });

  it("is stored for a fetch response with its status", async () => {
    const answer = new Response("away", { status: 500, statusText: "Broken" });
    const { letter } = await failWith(new Error("answered 500", { cause: answer }));

    expect(letter.cause).toEqual({ name: "Response", message: "HTTP 500 Broken", status: 500 });
  });

  it("is limited: five deep, twenty errors, a thousand characters, and a cycle ends", async () => {
    const deep = Array.from({ length: 50 }).reduce<Error>(
      (cause, _, at) => new Error(`level ${at} ${"x".repeat(20_000)}`, { cause }),
      new Error("innermost"),
    );
    const cyclic = new Error("round");
    cyclic.cause = new Error("and round", { cause: cyclic });
    const wide = new AggregateError(Array.from({ length: 5_000 }, (_, at) => new Error(`${at}`)));

    const { letter: long } = await failWith(deep);
    const { letter: round } = await failWith(cyclic);
    const { letter: broad } = await failWith(wide);

    const depth = (facts: ErrorFacts): number => (facts.cause ? 1 + depth(facts.cause) : 0);
    expect(depth(long)).toBe(5);
    expect(long.cause!.message).toHaveLength(1_000);
    expect(round.cause).toEqual({ name: "Error", message: "and round" });
    expect(broad.errors).toHaveLength(20);
  });

  it.each([
    ["a text", "it was dark", { cause: { name: "string", message: "it was dark" } }],
    ["a number", 7, { cause: { name: "number", message: "7" } }],
    ["null", null, { id: expect.any(String) }],
    ["an object", { no: 1 }, { cause: { name: "object", message: '{"no":1}' } }],
    [
      "an object whose getters throw",
      Object.defineProperty(new Error("x"), "message", {
        get() {
          throw new Error("no");
        },
      }),
      { cause: { name: "Error" } },
    ],
  ])("may be %s", async (_what, cause, expected) => {
    const { letter } = await failWith(new Error("no", { cause }));

    expect(letter).toMatchObject({ reason: expect.stringContaining("no"), ...expected });
  });

  it("is stored for a Discard", async () => {
    const cause = Object.assign(new Error("404"), { code: "E_GONE" });
    const { letter } = await failWith(new Discard("no such charge", { cause }));

    expect(letter).toMatchObject({ reason: "no such charge", cause: { code: "E_GONE" } });
  });
});

describe("the cause of a failure in a handler's separate process", () => {
  beforeEach(useBuiltSandbox);

  it("is returned from that process", async () => {
    const { sluice, queue } = openQueue<{ do: string }>(sluices);
    const handler = new URL("../../support/handlers/many-ways.mjs", import.meta.url);
    sluice.worker(queue, handler, { concurrency: 1 });
    const job = await queue.enqueue({ do: "wrapped" }, ONCE);

    const error = (await rejectionOf(job.finished())) as JobFailedError;
    const [letter] = await queue.failed({ code: "ECONNRESET" });

    const reset = { name: "Error", message: "read ECONNRESET", code: "ECONNRESET" };
    expect(letter).toMatchObject({
      errorName: "OutOfOrder",
      reason: "no charge (read ECONNRESET)",
      cause: { name: "TypeError", message: "fetch failed", cause: reset },
    });
    expect(error.cause).toMatchObject({ cause: { cause: { code: "ECONNRESET" } } });
  });
});
