import { describe, expect, it } from "vitest";
import { z } from "zod";
import type { EnqueueOptions, Job, Queue, QueueOptions, Sluice } from "sluice";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

interface Order {
  n: number;
  lines: { n: number }[];
}

const sluices = realSluices();
const FIVE = [0, 1, 2, 3, 4];
const shape = z.object({ n: z.number(), lines: z.array(z.object({ n: z.number() })) });
const asynchronous = shape.refine(async ({ lines }) => lines.length === 1);

function open(schema?: QueueOptions<Order>["schema"]): { sluice: Sluice; queue: Queue<Order> } {
  const sluice = sluices.open();
  const bucket = sluice.bucket("downstream", { rate: "500/s", burst: 10 });
  return { sluice, queue: sluice.queue<Order>("jobs", { bucket, schema }) };
}

function orderOf(n: number): Order {
  return { n, lines: [{ n }] };
}

function change(order: Order, n: number): Order {
  order.n = n;
  order.lines[0]!.n = n;
  return order;
}

/** What handlers get, in the order of the jobs' ids. */
async function jobsAtWork(sluice: Sluice, queue: Queue<Order>, count: number) {
  const jobs: Job<Order>[] = [];
  sluice.worker(queue, async (job) => void jobs.push(job));
  await waitUntil(() => jobs.length === count, "all are done");
  return jobs.toSorted((a, b) => Number(a.id) - Number(b.id));
}

class OrderOfClass implements Order {
  n = 0;
  lines = [{ n: 0 }];
}

describe("data that changes after it was given to enqueue", () => {
  it.each<[string, () => Order, QueueOptions<Order>["schema"]]>([
    ["without a schema", () => orderOf(0), undefined],
    ["without a schema, in an object of a class", () => new OrderOfClass(), undefined],
    ["with a schema", () => orderOf(0), shape],
    ["with a schema, in an object of a class", () => new OrderOfClass(), shape],
    ["with an asynchronous schema", () => orderOf(0), asynchronous],
  ])("is stored in its old state, %s", async (_how, make, schema) => {
    const { sluice, queue } = open(schema);
    const order = make();

    const enqueuing = FIVE.map((n) => queue.enqueue(change(order, n)));
    change(order, 99);
    const jobs = await Promise.all(enqueuing);

    const seen = await jobsAtWork(sluice, queue, FIVE.length);
    expect(seen.map(({ data }) => data)).toEqual(FIVE.map(orderOf));
    const isCopied = !(order instanceof OrderOfClass);
    expect(jobs.every(({ data }, n) => data.n === n) || !isCopied).toBe(true);
  });

  it.each<[string, QueueOptions<Order>["schema"]]>([
    ["without a schema", undefined],
    ["with a schema", shape],
    ["with an asynchronous schema", asynchronous],
  ])("is stored in its old state by enqueueMany, %s", async (_how, schema) => {
    const { sluice, queue } = open(schema);
    const orders = FIVE.map(orderOf);

    const enqueuing = queue.enqueueMany(orders);
    for (const order of orders) change(order, 99);
    orders.splice(1);
    const jobs = await enqueuing;

    const seen = await jobsAtWork(sluice, queue, FIVE.length);
    expect(seen.map(({ data }) => data)).toEqual(FIVE.map(orderOf));
    expect(jobs.map(({ data }) => data)).toEqual(FIVE.map(orderOf));
  });

  it("is stored in its old state by a recurring job", async () => {
    const { sluice, queue } = open();
    const order = orderOf(1);

    const enqueuing = queue.enqueue(order, { every: 3_600_000, dedupeId: "hourly" });
    change(order, 99);
    await enqueuing;

    const [run] = await jobsAtWork(sluice, queue, 1);
    expect(run!.data).toEqual(orderOf(1));
  });
});

describe("options that change after the call", () => {
  it("apply in their old state to enqueue", async () => {
    const { queue } = open();
    const cost = { calls: 2 };
    const at = new Date(Date.now() + 3_600_000);
    const options = { key: "first", cost, at };

    const enqueuing = queue.enqueue(orderOf(0), options);
    Object.assign(options, { key: "second" });
    cost.calls = 3;
    at.setTime(0);
    const job = await enqueuing;

    expect(job).toMatchObject({ key: "first", cost: { calls: 2 } });
    expect(await job.state()).toBe("delayed");
  });

  it.each(["one for all", "one that a function returns again and again"])(
    "apply in their old state to enqueueMany: %s",
    async (how) => {
      const { queue } = open();
      const options: EnqueueOptions & { cost: { calls: number } } = { cost: { calls: 2 } };
      const given = how === "one for all" ? options : () => options;

      const enqueuing = queue.enqueueMany(FIVE.map(orderOf), given);
      options.cost.calls = 3;
      const jobs = await enqueuing;

      expect(jobs.map(({ cost }) => cost)).toEqual(FIVE.map(() => ({ calls: 2 })));
    },
  );
});
