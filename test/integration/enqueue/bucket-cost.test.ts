import { describe, expect, it } from "vitest";
import { leakyBucket, type BucketOptions, type Queue, type Sluice } from "sluice";
import { openai } from "sluice/llm";
import { rejectionOf } from "../../support/async/rejection.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

interface Chat {
  readonly messages: readonly { readonly role: string; readonly content: string }[];
  readonly max_tokens?: number;
}

const sluices = realSluices();
const TOKENS = { limits: [leakyBucket("60000/min", { unit: "tokens", burst: 5_000 })] };
const chat = (content: string): Chat => ({ messages: [{ role: "user", content }], max_tokens: 50 });

function queueOf<Data>(options: BucketOptions, sluice: Sluice = sluices.open()): Queue<Data> {
  return sluice.queue<Data, unknown, Data>("jobs", { bucket: sluice.bucket("model", options) });
}

describe("a job without a cost", () => {
  it("costs what a preset estimates for its data, each of many separately", async () => {
    const preset = openai({ tokens: "200000/min" });
    const queue = queueOf<Chat>(preset);
    const [short, long] = [chat("Why?"), chat("Why is it so? ".repeat(300))];

    const one = await queue.enqueue(long);
    const many = await queue.enqueueMany([short, long]);

    expect(one.cost).toEqual(preset.estimate(long));
    expect(many.map(({ cost }) => cost)).toEqual([preset.estimate(short), preset.estimate(long)]);
    expect(many[1]!.cost).not.toEqual(many[0]!.cost);
  });

  it("costs one call if its data is not a request", async () => {
    const queue = queueOf<number>(openai({ tokens: "200000/min" }));

    const job = await queue.enqueue(7);

    expect(job.cost).toBeUndefined();
  });

  it("costs the bucket's constant cost, or the result of its function of data and key", async () => {
    const seen: unknown[] = [];
    const fixed = queueOf<number>({ ...TOKENS, cost: { tokens: 300 } });
    const byData = queueOf<number>({
      ...TOKENS,
      cost: async ({ args, key }) => {
        seen.push([args, key]);
        return { tokens: args[0] as number };
      },
    });

    const first = await fixed.enqueue(1);
    const second = await byData.enqueue(20, { key: ["acme", "e1"] });

    expect([first.cost, second.cost]).toEqual([{ tokens: 300 }, { tokens: 20 }]);
    expect(seen).toEqual([[[20], ["acme", "e1"]]]);
  });

  it("is charged that cost when it starts", async () => {
    const sluice = sluices.open();
    const cost: BucketOptions["cost"] = ({ args }) => ({ tokens: args[0] as number });
    const queue = queueOf<number>({ ...TOKENS, cost }, sluice);
    const job = await queue.enqueue(4_000);

    sluice.worker(queue, async () => "done");
    await job.finished();

    // A thousand a second drain.
    expect((await queue.bucket.peek()).limits[0]!.level).toBeGreaterThan(1_000);
  });

  it("has its cost computed from a copy of its data, so that later changes have no effect", async () => {
    const queue = queueOf<{ tokens: number }>({
      ...TOKENS,
      cost: async ({ args }) => ({ tokens: (args[0] as { tokens: number }).tokens }),
    });
    const data = { tokens: 10 };

    const storing = queue.enqueue(data);
    data.tokens = 999;

    expect((await storing).cost).toEqual({ tokens: 10 });
  });

  it("is rejected when the bucket's cost function fails or its cost can never pass, and nothing is stored", async () => {
    const failing = queueOf<number>({
      ...TOKENS,
      cost: ({ args }) => {
        if (args[0] === 1) throw new Error("no request");
        return { tokens: 9_999 };
      },
    });

    const failed = await rejectionOf(failing.enqueue(1));
    const ofMany = await rejectionOf(failing.enqueueMany([1]));
    const tooLarge = await rejectionOf(failing.enqueue(2));

    expect(failed).toMatchObject({ code: "ERR_INVALID_OPTION", option: "cost" });
    expect((failed as Error).message).toContain("no request");
    expect((ofMany as Error).message).toMatch(/^enqueueMany\(\)\[0\]/);
    expect(tooLarge).toMatchObject({ code: "ERR_COST_TOO_LARGE" });
    expect((await failing.counts()).waiting).toBe(0);
  });
});

it("costs its own cost if it has one, whatever its bucket says", async () => {
  const queue = queueOf<number>({ ...TOKENS, cost: { tokens: 300 } });

  const job = await queue.enqueue(1, { cost: { tokens: 100 } });

  expect(job.cost).toEqual({ tokens: 100 });
});
