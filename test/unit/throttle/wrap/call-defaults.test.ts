import { afterEach, describe, expect, it } from "vitest";
import {
  createSluice,
  InvalidOptionError,
  throttledClient,
  tokenBucket,
  type AnsweredCall,
  type Bucket,
  type BucketOptions,
  type Sluice,
} from "sluice";
import { waitUntil } from "../../../support/async/wait-until.ts";

const warnings: string[] = [];
const logger = { warn: (_facts: object, text: string) => void warnings.push(text), error() {} };
let opened: Sluice[] = [];
afterEach(async () => {
  await Promise.all(opened.map((sluice) => sluice.close()));
  opened = [];
  warnings.length = 0;
});

interface Request {
  readonly size: number;
}
interface Answer {
  readonly used: number;
}

/** A bucket of 1,000 tokens that does not fill again, whose calls cost by their first argument. */
function open(options: Omit<BucketOptions, "rate"> = {}): Bucket {
  const sluice = createSluice({ logger });
  opened.push(sluice);
  return sluice.bucket("model", {
    limits: [tokenBucket({ capacity: 1_000, refill: "1/h", unit: "tokens" })],
    onStateLost: "full",
    cost: ({ args }) => ({ tokens: (args[0] as Request).size }),
    settle: (result) => ({ tokens: (result as Answer).used }),
    ...options,
  });
}

async function usedOf(bucket: Bucket): Promise<number> {
  const [limit] = (await bucket.peek()).limits;
  return 1_000 - limit!.remaining;
}

async function untilUsed(bucket: Bucket, tokens: number): Promise<void> {
  await waitUntil(async () => (await usedOf(bucket)) === tokens, `${tokens} tokens are used`);
}

const answer = async (_request: Request): Promise<Answer> => ({ used: 30 });

describe("a bucket with cost and settle of its own", () => {
  it("estimates each call of a throttled function by its arguments, and settles it by its result", async () => {
    const bucket = open();
    const drawn: number[] = [];
    const ask = bucket.throttled(async (request: Request) => {
      drawn.push(await usedOf(bucket));
      return answer(request);
    });

    await ask({ size: 200 });

    await untilUsed(bucket, 30);
    expect(drawn).toEqual([200]);
  });

  it("does the same for the methods of a client", async () => {
    const bucket = open();
    const client = throttledClient({ ask: answer }, bucket, { methods: ["ask"] });

    await client.ask({ size: 200 });

    await untilUsed(bucket, 30);
    expect(await usedOf(bucket)).toBe(30);
  });

  it("does the same for fetch, whose settle gets a copy of the response", async () => {
    const bucket = open({
      cost: async ({ args }) =>
        JSON.parse((args[1] as { body: string }).body) as { tokens: number },
      settle: async (result) => ({ tokens: ((await (result as Response).json()) as Answer).used }),
    });
    const drawn: number[] = [];
    const fetch = bucket.fetch.with({
      fetch: async () => {
        drawn.push(await usedOf(bucket));
        return Response.json({ used: 40 });
      },
    });

    const response = await fetch("http://model", { method: "POST", body: '{"tokens":200}' });

    expect(await response.json()).toEqual({ used: 40 });
    await untilUsed(bucket, 40);
    expect(drawn).toEqual([200]);
  });

  it("settles what run returns, of which nothing was known before", async () => {
    const bucket = open({ cost: ({ args }) => (args.length === 0 ? undefined : { tokens: 1 }) });

    await bucket.run(() => answer({ size: 1 }));

    await untilUsed(bucket, 30);
    expect(await usedOf(bucket)).toBe(30);
  });

  it("passes the call to settle: its arguments, its key and its drawn cost", async () => {
    const calls: AnsweredCall[] = [];
    const bucket = open({ settle: (_result, call) => void calls.push(call) });

    await bucket.throttled(answer, { key: "acme" })({ size: 5 });

    await waitUntil(() => calls.length === 1, "it is told");
    expect(calls).toMatchObject([{ args: [{ size: 5 }], key: "acme", cost: { tokens: 5 } }]);
  });

  it("passes the called method of a client to cost and settle, also for two objects of one class", async () => {
    class Resource {
      async create(_request: Request): Promise<Answer> {
        return { used: 1 };
      }
    }
    const costed: unknown[] = [];
    const settled: unknown[] = [];
    const bucket = open({
      cost: ({ method }) => void costed.push(method),
      settle: (_result, { method }) => void settled.push(method),
    });
    const client = { ask: answer, chat: { messages: new Resource() }, threads: new Resource() };
    const paced = throttledClient(client, bucket);

    await paced.chat.messages.create({ size: 5 });
    await paced.threads.create({ size: 5 });
    await paced.ask({ size: 5 });
    await bucket.throttled(answer)({ size: 5 });

    const methods = ["chat.messages.create", "threads.create", "ask", undefined];
    expect(costed).toEqual(methods);
    await waitUntil(() => settled.length === 4, "all are settled");
    expect(settled).toEqual(methods);
  });

  it("leaves a call what it says itself, and that of each by itself", async () => {
    const bucket = open();
    const costly = bucket.throttled(answer, { cost: { tokens: 500 } });
    const settled = bucket.throttled(answer, { settle: () => ({ tokens: 7 }) });

    await costly({ size: 5 });
    await untilUsed(bucket, 30);
    await settled({ size: 5 });

    await untilUsed(bucket, 37);
    expect(await usedOf(bucket)).toBe(37);
  });

  it("takes a cost that is the same for all calls", async () => {
    const bucket = open({ cost: { tokens: 12 }, settle: undefined });

    await bucket.throttled(answer)({ size: 5 });

    expect(await usedOf(bucket)).toBe(12);
  });

  it("gives settle a generator itself before its first step, and waits for what it makes of it", async () => {
    let endOfStream = (_cost: { tokens: number }): void => {};
    const bucket = open({
      settle: (result) => {
        expect(result).toHaveProperty("next");
        return new Promise((resolve) => (endOfStream = resolve));
      },
    });
    async function* stream(_request: Request) {
      yield "a";
      return "end";
    }

    for await (const _part of (await bucket.throttled(stream)({
      size: 100,
    })) as AsyncIterable<string>);
    expect(await usedOf(bucket)).toBe(100);
    endOfStream({ tokens: 9 });

    await untilUsed(bucket, 9);
    expect(await usedOf(bucket)).toBe(9);
  });

  it("gives the tokens of a refused call back", async () => {
    const bucket = open({ settle: undefined });
    const refuse = async (_request: Request): Promise<Response> =>
      new Response("", { status: 429 });

    await bucket.throttled(refuse)({ size: 100 });

    expect(await usedOf(bucket)).toBe(0);
  });

  it("keeps the estimate where settle fails, and says so", async () => {
    const bucket = open({ settle: () => Promise.reject(new Error("no usage")) });

    await bucket.throttled(answer)({ size: 100 });

    await waitUntil(() => warnings.some((text) => text.includes("no usage")), "it is said");
    expect(await usedOf(bucket)).toBe(100);
  });

  it.each<[string, unknown]>([
    ["cost", ({ args }: { args: unknown[] }) => ({ tokens: -(args[0] as Request).size })],
    ["cost", () => "much"],
    ["cost", async () => ({ tokens: 0.5 })],
  ])("refuses a call whose %s can never work", async (option, cost) => {
    const bucket = open({ cost: cost as () => undefined });

    const refused = bucket.throttled(answer)({ size: 1 });

    await expect(refused).rejects.toBeInstanceOf(InvalidOptionError);
    await expect(refused).rejects.toThrow(option);
    expect(await usedOf(bucket)).toBe(0);
  });

  it.each<[string, object]>([
    ["cost", { cost: "much" }],
    ["cost.tokens", { cost: { tokens: -1 } }],
    ["settle", { settle: { tokens: 1 } }],
    ["settled", { settled: () => undefined }],
  ])("is refused if its %s can never work", (option, options) => {
    const sluice = createSluice({ logger });
    opened.push(sluice);

    const declare = (): unknown => sluice.bucket("b", { rate: "1/s", ...options });

    expect(declare).toThrow(InvalidOptionError);
    expect(declare).toThrow(option);
  });

  it("has to have the same functions when it is declared again", () => {
    const sluice = createSluice({ logger });
    opened.push(sluice);
    const cost = (): undefined => undefined;
    const first = sluice.bucket("b", { rate: "1/s", cost });

    expect(sluice.bucket("b", { rate: "1/s", cost })).toBe(first);
    expect(sluice.bucket("b", { rate: "1/s" })).toBe(first);
    expect(() => sluice.bucket("b", { rate: "1/s", cost: () => undefined })).toThrow("cost");
  });
});
