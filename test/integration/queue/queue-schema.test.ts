import { describe, expect, expectTypeOf, it } from "vitest";
import { z } from "zod";
import { InvalidOptionError, type Queue, type Schema } from "sluice";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const sluices = realSluices();
const ORDER = z.object({
  id: z.string(),
  amount: z.number().positive(),
  currency: z.string().default("EUR"),
});

/** The queue of this name, by a sluice of its own. */
function openQueue<Data, Input = Data>(schema?: Schema<Data, Input>) {
  const sluice = sluices.open();
  const bucket = sluice.bucket("downstream", { rate: "500/s" });
  return { sluice, bucket, queue: sluice.queue<Data, unknown, Input>("jobs", { bucket, schema }) };
}

describe("a queue's schema", () => {
  it("has its output stored, and passed to the handler", async () => {
    const { sluice, queue } = openQueue(ORDER);
    const seen: unknown[] = [];
    sluice.worker(queue, async (job) => void seen.push(job.data));

    const given = await queue.enqueue({ id: "a", amount: 5 });
    await given.finished();

    expect(given.data).toEqual({ id: "a", amount: 5, currency: "EUR" });
    expect(seen).toEqual([given.data]);
  });

  it("parses the JSON for the handler, for example into dates", async () => {
    const { sluice, queue } = openQueue(z.object({ due: z.coerce.date() }));
    const seen: unknown[] = [];
    sluice.worker(queue, async (job) => void seen.push(job.data.due.getTime()));

    await (await queue.enqueue({ due: "2030-01-01" })).finished();

    expect(seen).toEqual([Date.UTC(2030)]);
  });

  it("types the data of producers and handlers", () => {
    const { queue } = openQueue(ORDER);

    expectTypeOf(queue).toEqualTypeOf<
      Queue<z.output<typeof ORDER>, unknown, z.input<typeof ORDER>>
    >();
  });

  it.each([
    [{ id: "a", amount: -1 }, "data.amount"],
    [{ amount: 1 }, "data.id"],
    ["no object", "data"],
  ])("refuses %j when it is enqueued, with the path of the first issue", async (data, option) => {
    const { queue } = openQueue(ORDER);

    const reason = await rejectionOf(queue.enqueue(data as never));

    expect(reason).toBeInstanceOf(InvalidOptionError);
    expect(reason).toMatchObject({ option });
    expect(await queue.counts()).toMatchObject({ waiting: 0 });
  });

  it("that refuses its own output is found immediately, and not by each job", async () => {
    const { queue } = openQueue(z.object({ at: z.string().transform((text) => text.length) }));

    const reason = await rejectionOf(queue.enqueue({ at: "noon" }));

    expect(reason).toMatchObject({
      code: "ERR_INVALID_OPTION",
      option: "data.at",
      value: { at: 4 },
    });
  });

  it("that accepts no JSON, such as z.date(), is also found immediately", async () => {
    const { queue } = openQueue(z.object({ at: z.date() }));

    const reason = await rejectionOf(queue.enqueue({ at: new Date() }));

    expect(reason).toMatchObject({ code: "ERR_INVALID_OPTION", option: "data.at" });
  });

  it.each([
    [
      "throws",
      () => {
        throw new TypeError("no prices today");
      },
    ],
    ["rejects", () => Promise.reject(new TypeError("no prices today"))],
  ])("that %s is reported by an error with its name", async (_way, validate) => {
    const schema = { "~standard": { version: 1, vendor: "own", validate } } as Schema<string>;
    const { queue } = openQueue(schema);

    const reason = await rejectionOf(queue.enqueue("any"));

    expect(reason).toBeInstanceOf(InvalidOptionError);
    expect(reason).toMatchObject({ option: "data", cause: { message: "no prices today" } });
    expect((reason as Error).message).toContain("no prices today");
  });

  it("may be asynchronous", async () => {
    const { queue } = openQueue(z.string().refine(async (text) => text !== "bad"));

    await queue.enqueue("good");
    const reason = await rejectionOf(queue.enqueue("bad"));

    expect(reason).toBeInstanceOf(InvalidOptionError);
  });

  it("of a worker fails a refused job immediately, before its handler", async () => {
    const producer = openQueue<unknown>();
    await producer.queue.enqueue({ id: "a", amount: -1 }, { attempts: 5 });
    const { sluice, queue } = openQueue(ORDER);
    let calls = 0;

    sluice.worker(queue, async () => void (calls += 1));
    await waitUntil(async () => (await queue.counts()).failed === 1, "the job has failed");
    const [failed] = await queue.failed();

    expect(calls).toBe(0);
    expect(failed).toMatchObject({ attempts: 1 });
    expect(failed!.reason).toMatch(/^Invalid: data\.amount is refused by the queue's schema: /);
  });

  it.each([
    [{ schema: {} }, "schema"],
    [{ schema: { "~standard": {} } }, "schema"],
    [{ maxJobBytes: 0 }, "maxJobBytes"],
  ])("and its other options must be valid: %j", (options, option) => {
    const sluice = sluices.open();
    const bucket = sluice.bucket("downstream", { rate: "500/s" });

    const declare = (): unknown => sluice.queue("jobs", { bucket, ...(options as object) });

    expect(declare).toThrow(InvalidOptionError);
    expect(declare).toThrow(`option "${option}"`);
  });

  it("cannot change when the queue is declared again", () => {
    const { sluice, bucket, queue } = openQueue(ORDER);

    const again = sluice.queue("jobs", { bucket });
    const declare = (): unknown => sluice.queue("jobs", { bucket, schema: z.string() });

    expect(again).toBe(queue);
    expect(declare).toThrow('option "schema"');
  });
});
