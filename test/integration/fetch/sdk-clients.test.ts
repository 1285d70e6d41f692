import type { ServerResponse } from "node:http";
import OpenAI from "openai";
import { describe, expect, inject, it } from "vitest";
import { leakyBucket, throttledClient } from "sluice";
import { children } from "../../support/children/child.ts";
import {
  fakeApis,
  secondCap,
  type ApiAnswer,
  type ApiCall,
} from "../../support/servers/fake-api.ts";
import type { SdkCallerConfig } from "../../support/processes/sdk-caller.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const processes = children();
const sluices = realSluices();
const apis = fakeApis();

const PROCESSES = 4;
const CALLS = 40;
const RATE = 50;
/** The bucket keeps below it, as is wise where a network lies between. */
const CAP = 60;
const JSON_TYPE = { "content-type": "application/json" };

/** What an API of a vendor answers: to a call that may pass, and to one too many. */
interface Vendor {
  readonly sdk: SdkCallerConfig["sdk"];
  readonly answer: (call: ApiCall) => ApiAnswer;
  readonly refuse: () => ApiAnswer;
}

function json(value: unknown, more: ApiAnswer = {}): ApiAnswer {
  return { ...more, headers: { ...JSON_TYPE, ...more.headers }, body: JSON.stringify(value) };
}

function completion(content: string, totalTokens = 12): object {
  const choices = [{ index: 0, message: { role: "assistant", content }, finish_reason: "stop" }];
  const usage = {
    prompt_tokens: 10,
    completion_tokens: totalTokens - 10,
    total_tokens: totalTokens,
  };
  return { id: "c-1", object: "chat.completion", created: 1, model: "gpt-test", choices, usage };
}

function streamedCompletion(content: string): ApiAnswer {
  const pieces = [content.slice(0, 4), content.slice(4)];
  const events = pieces.map((piece) => ({
    id: "c-1",
    object: "chat.completion.chunk",
    created: 1,
    model: "gpt-test",
    choices: [{ index: 0, delta: { content: piece }, finish_reason: null }],
  }));
  return {
    headers: { "content-type": "text/event-stream" },
    stream(response) {
      const [first, ...rest] = events.map((event) => `data: ${JSON.stringify(event)}\n\n`);
      response.write(first, () =>
        setImmediate(() => response.end(`${rest.join("")}data: [DONE]\n\n`)),
      );
    },
  };
}

const openai: Vendor = {
  sdk: "openai",
  answer({ body }) {
    const { messages, stream } = JSON.parse(body) as {
      messages: { content: string }[];
      stream?: boolean;
    };
    const { content } = messages[0]!;
    return stream === true ? streamedCompletion(content) : json(completion(content));
  },
  refuse: () =>
    json(
      { error: { message: "Rate limit reached", type: "requests", code: "rate_limit_exceeded" } },
      { status: 429, headers: { "retry-after-ms": "400", "retry-after": "1" } },
    ),
};

const stripe: Vendor = {
  sdk: "stripe",
  answer({ body, path }) {
    const object = path === "/v1/charges" ? "charge" : "payment_intent";
    const description = new URLSearchParams(body).get("description");
    return json({ id: `${object}_1`, object, amount: 1_000, description });
  },
  refuse: () =>
    json(
      { error: { type: "invalid_request_error", code: "rate_limit", message: "Too many" } },
      { status: 429, headers: { "retry-after": "1", "stripe-rate-limited-reason": "global-rate" } },
    ),
};

const octokit: Vendor = {
  sdk: "octokit",
  answer({ path }) {
    const title = new URL(path, "http://localhost").searchParams.get("labels");
    return json([{ id: 1, number: 1, title, state: "open" }]);
  },
  refuse: () =>
    json(
      { message: "You have exceeded a secondary rate limit." },
      { status: 403, headers: { "retry-after": "1" } },
    ),
};

describe.each([openai, stripe, octokit])(
  "four processes that use the client of $sdk over bucket.fetch",
  ({ sdk, answer, refuse }) => {
    it("stay below the cap, and succeed after rejections without retries of the client", async () => {
      const isOverCap = secondCap(CAP);
      let overCap = 0;
      const api = await apis.start((call, number) => {
        if (isOverCap(call)) overCap += 1;
        // Others use the account as well: some calls are refused that keep below the cap.
        return number === 20 || number === 100 ? refuse() : answer(call);
      });
      const where = { redis: inject("redisUrl"), prefix: sluices.prefix(), url: api.url };
      const config: SdkCallerConfig = { ...where, sdk, rate: `${RATE}/s`, calls: CALLS };
      const callers = Array.from({ length: PROCESSES }, () =>
        processes.start("sdk-caller.ts", [JSON.stringify(config)]),
      );
      await waitUntil(
        () => callers.every(({ messages }) => messages.length === 1),
        "all are ready",
      );

      for (const caller of callers) caller.send("go");
      await Promise.all(callers.map((caller) => caller.success()));

      const expected = Array.from({ length: CALLS }, (_, number) => `say ${number}`);
      for (const { messages } of callers) expect(messages[1]).toEqual(expected);
      const refused = api.calls.filter(({ status }) => status !== 200);
      expect(refused).toHaveLength(2);
      expect(api.calls).toHaveLength(PROCESSES * CALLS + refused.length);
      expect(overCap).toBe(0);
      expect(api.worst(1_000)).toBeLessThanOrEqual(CAP);
    });
  },
);

describe("a client of openai that throttledClient wraps", () => {
  it("draws calls and tokens for each completion, and settles the actual usage", async () => {
    const api = await apis.start(({ body }) => {
      const { messages } = JSON.parse(body) as { messages: { content: string }[] };
      return json(completion(messages[0]!.content, 30));
    });
    const limits = [
      leakyBucket("1/h", { burst: 10 }),
      leakyBucket("1/h", { burst: 1_000, unit: "tokens" }),
    ];
    const bucket = sluices.open().bucket("openai", { limits });
    const client = new OpenAI({ apiKey: "sk-test", baseURL: `${api.url}/v1`, maxRetries: 0 });
    const paced = throttledClient(client, bucket, {
      methods: ["chat.completions.create"],
      cost: (request: OpenAI.ChatCompletionCreateParams) => ({ tokens: request.max_tokens ?? 100 }),
      settle: (result: OpenAI.ChatCompletion) => ({ tokens: result.usage?.total_tokens }),
    });
    const messages = [{ role: "user" as const, content: "hello" }];

    const answers = await Promise.all(
      Array.from({ length: 3 }, () =>
        paced.chat.completions.create({ model: "gpt-test", messages, max_tokens: 200 }),
      ),
    );

    expect(answers.map(({ choices }) => choices[0]?.message.content)).toEqual(
      Array(3).fill("hello"),
    );
    const used = async (): Promise<number[]> =>
      (await bucket.peek()).limits.map(({ level }) => level);
    await waitUntil(
      async () => (await used())[1] === 90,
      "three times 30 tokens are booked, not 200",
    );
    expect(await used()).toEqual([3, 90]);
    expect(api.calls.map(({ path }) => path)).toEqual(Array(3).fill("/v1/chat/completions"));
  });

  it("cools its bucket down for the error that the client throws", async () => {
    const api = await apis.start(() => ({ ...openai.refuse(), headers: { "retry-after": "30" } }));
    const bucket = sluices.open().bucket("openai", { rate: "100/s" });
    const client = new OpenAI({ apiKey: "sk-test", baseURL: `${api.url}/v1`, maxRetries: 0 });
    const paced = throttledClient(client, bucket, { methods: ["chat.completions.create"] });

    const call = paced.chat.completions.create({ model: "gpt-test", messages: [] });

    await expect(call).rejects.toBeInstanceOf(OpenAI.RateLimitError);
    expect((await bucket.peek()).coolingForMs).toBeGreaterThan(20_000);
  });
});

describe("a client of openai that is given a bucket's fetch", () => {
  const TAKEN = 100;

  function open(baseURL: string) {
    const bucket = sluices.open().bucket("openai", {
      limits: [leakyBucket("1000/s"), leakyBucket("1/h", { unit: "tokens", burst: 1_000 })],
      concurrency: 1,
    });
    const fetch = bucket.fetch.with({
      cost: (_url, init) => (typeof init?.body === "string" ? { tokens: TAKEN } : undefined),
      settle: async (answer) => {
        const { usage } = (await answer.json()) as OpenAI.ChatCompletion;
        return { tokens: usage?.total_tokens };
      },
    });
    const levels = async () => (await bucket.peek()).limits.map(({ level }) => level).slice(1);
    return { client: new OpenAI({ apiKey: "k", baseURL, fetch, maxRetries: 0 }), levels };
  }

  const ask = { model: "gpt-test", messages: [{ role: "user", content: "?" } as const] };

  it("counts the tokens that each completion used, and none for requests without tokens", async () => {
    const api = await apis.start(({ method }) =>
      json(method === "GET" ? { object: "list", data: [] } : completion("A gate.", 42)),
    );
    const { client, levels } = open(api.url);

    await client.models.list();
    const { choices } = await client.chat.completions.create(ask);

    expect(choices[0]!.message.content).toBe("A gate.");
    await waitUntil(async () => String(await levels()) === "42,0", "it is settled");
    expect(await levels()).toEqual([42, 0]);
  });

  it("disconnects when a stream is left early, and keeps the estimate", async () => {
    let isOpen = true;
    const stream = (response: ServerResponse): void => {
      response.once("close", () => (isOpen = false));
      response.write('data: {"choices":[{"delta":{"content":"A"}}]}\n\n');
    };
    const headers = { "content-type": "text/event-stream" };
    const api = await apis.start(() => ({ headers, stream }));
    const { client, levels } = open(api.url);

    for await (const _chunk of await client.chat.completions.create({ ...ask, stream: true })) {
      break;
    }

    await waitUntil(() => !isOpen, "the server is left");
    await waitUntil(async () => (await levels())[1] === 0, "its lease is given back");
    expect(await levels()).toEqual([TAKEN, 0]);
  });
});
