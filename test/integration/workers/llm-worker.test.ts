import type { ServerResponse } from "node:http";
import { describe, expect, it } from "vitest";
import type { JobFailedError, Queue } from "sluice";
import { openai } from "sluice/llm";
import {
  LLM_QUEUE,
  openLlmQueue,
  type ChatRequest,
  type ChatResult,
} from "../../../workers/llm/queue.ts";
import { readSettings } from "../../../workers/shared/settings.ts";
import {
  fakeApis,
  type ApiAnswer,
  type ApiCall,
  type FakeApi,
} from "../../support/servers/fake-api.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import type { ScriptProcess } from "../../support/children/script-process.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { faultsOfRefusal, workerFiles, type Environment } from "../../support/jobs/worker-files.ts";

const API_KEY = "sk-secret-0123456789";
const LIMITS = {
  SLUICE_REQUESTS_PER_MIN: "60000",
  SLUICE_TOKENS_PER_MIN: "90000",
  SLUICE_TOKENS_COUNTED: "used",
};
const REQUEST: ChatRequest = {
  model: "gpt-test",
  messages: [{ role: "user", content: "Why is the sky blue? ☃" }],
  max_tokens: 200,
};
const { tokens: ESTIMATE } = openai({ tokens: "90000/min", counts: "used" }).estimate(REQUEST) as {
  readonly tokens: number;
};
const USAGE = { prompt_tokens: 10, completion_tokens: 20, total_tokens: 30 };
const FAST = { attempts: 5, backoff: { baseMs: 1 } };

const sluices = realSluices();
const workers = workerFiles(sluices);
const apis = fakeApis();

function openQueue(): Queue<ChatRequest> {
  return openLlmQueue(sluices.open(), readSettings(LIMITS, LLM_QUEUE));
}

function startWorker({ url }: Pick<FakeApi, "url">, env: Environment = {}): ScriptProcess {
  const api = { OPENAI_API_KEY: API_KEY, OPENAI_BASE_URL: `${url}/v1` };
  return workers.start("llm-worker.ts", { ...LIMITS, ...api, ...env });
}

function json(value: unknown, more: ApiAnswer = {}): ApiAnswer {
  const headers = { "content-type": "application/json", ...more.headers };
  return { ...more, headers, body: JSON.stringify(value) };
}

function completion(content: string, usage: object | undefined = USAGE): ApiAnswer {
  const choices = [{ index: 0, message: { role: "assistant", content }, finish_reason: "stop" }];
  return json({ id: "c-1", object: "chat.completion", created: 1, choices, usage });
}

function refusal(status: number, headers: Readonly<Record<string, string>> = {}): ApiAnswer {
  const message = `Incorrect API key provided: ${API_KEY}`;
  return json({ error: { message, code: "some_code" } }, { status, headers });
}

function event(data: object): string {
  return `data: ${JSON.stringify({ object: "chat.completion.chunk", ...data })}\n\n`;
}

function piece(content: string, finish_reason: string | null = null): string {
  return event({ choices: [{ index: 0, delta: { content }, finish_reason }] });
}

function streamed(stream: (response: ServerResponse) => void): ApiAnswer {
  return { headers: { "content-type": "text/event-stream" }, stream };
}

/** How many tokens the bucket has given out in the last minute. */
async function bookedTokens({ bucket }: Queue<ChatRequest>): Promise<number | undefined> {
  const { limits } = await bucket.peek();
  return limits.findLast(({ unit }) => unit === "tokens")?.level;
}

/** What an answer took is booked once it has been read. */
async function settled(queue: Queue<ChatRequest>, tokens: number): Promise<void> {
  const isBooked = async (): Promise<boolean> => (await bookedTokens(queue)) === tokens;
  await waitUntil(isBooked, `${tokens} tokens are booked`);
}

describe("the LLM worker", () => {
  it("asks for what the job says, keeps the answer, and settles the tokens that it took", async () => {
    const api = await apis.start(() => completion("Rayleigh."));
    const queue = openQueue();
    const job = await queue.enqueue({ ...REQUEST, temperature: 0 });

    startWorker(api);
    const result = await job.finished<ChatResult>();

    expect(result).toEqual({ text: "Rayleigh.", finishReason: "stop", totalTokens: 30 });
    const [call] = api.calls;
    expect(call).toMatchObject({
      method: "POST",
      path: "/v1/chat/completions",
      headers: { authorization: `Bearer ${API_KEY}` },
    });
    expect(JSON.parse(call!.body)).toEqual({ ...REQUEST, temperature: 0 });
    expect(job.cost).toEqual({ tokens: ESTIMATE });
    await settled(queue, 30);
  });

  it("puts a streamed answer together, and settles it at its end by the last chunk's usage", async () => {
    let rest: (() => void) | undefined;
    const api = await apis.start(() =>
      streamed((response) => {
        const bytes = Buffer.from(piece("The sky ☃ "));
        const inSnowman = bytes.indexOf(Buffer.from("☃")) + 1;
        response.write(bytes.subarray(0, inSnowman));
        rest = () => {
          response.write(bytes.subarray(inSnowman));
          response.write(": a comment\r\n\r\n");
          response.write(piece("scatters.") + piece("", "stop"));
          response.end(`${event({ choices: [], usage: USAGE })}data: [DONE]\n\n`);
        };
      }),
    );
    const queue = openQueue();
    const job = await queue.enqueue({ ...REQUEST, stream: true });

    startWorker(api);
    await waitUntil(() => rest !== undefined, "the answer has begun");
    const bookedMeanwhile = await bookedTokens(queue);
    rest!();
    const result = await job.finished<ChatResult>();

    expect(result).toEqual({
      text: "The sky ☃ scatters.",
      finishReason: "stop",
      totalTokens: 30,
    });
    expect(JSON.parse(api.calls[0]!.body)).toMatchObject({
      stream: true,
      stream_options: { include_usage: true },
    });
    expect(bookedMeanwhile).toBe(ESTIMATE);
    await settled(queue, 30);
  });

  it.each([
    ["whole", false, () => completion("Because.", {})],
    [
      "streamed",
      true,
      () => streamed((response) => response.end(`${piece("Because.", "stop")}data: [DONE]\n\n`)),
    ],
  ] as const)(
    "counts the text when a %s response does not state its usage",
    async (_how, stream, answer) => {
      const api = await apis.start(answer);
      const queue = openQueue();
      const job = await queue.enqueue({ ...REQUEST, stream });

      startWorker(api);
      const result = await job.finished<ChatResult>();

      expect(result).toEqual({ text: "Because.", finishReason: "stop" });
      const isCounted = async (): Promise<boolean> => (await bookedTokens(queue))! < ESTIMATE - 150;
      await waitUntil(isCounted, "a short answer is booked, and not the longest");
    },
  );

  it("asks again after a 429 when its Retry-After is over, and asks nothing else before", async () => {
    const api = await apis.start((_call, number) =>
      number === 0 ? refusal(429, { "retry-after": "2" }) : completion("Because."),
    );
    const queue = openQueue();
    const first = await queue.enqueue(REQUEST, FAST);
    const worker = startWorker(api);
    await waitUntil(() => worker.stdout.includes("was answered 429"), "it is refused");
    const isCooling = async (): Promise<boolean> => (await queue.bucket.peek()).coolingForMs > 0;
    await waitUntil(isCooling, "all have heard of that");

    const second = await queue.enqueue(REQUEST, FAST);
    await Promise.all([first.finished(), second.finished()]);

    const [refused, ...later] = api.calls.map(({ atMs }) => atMs);
    expect(later).toHaveLength(2);
    expect(Math.min(...later) - refused!).toBeGreaterThanOrEqual(2_000);
  });

  it("gives a job up that is answered 400, 401, 403 or 404", async () => {
    const statuses = [400, 401, 403, 404];
    const api = await apis.start((_call, number) => refusal(statuses[number] ?? 500));
    const jobs = await openQueue().enqueueMany(Array<ChatRequest>(4).fill(REQUEST), FAST);

    startWorker(api);
    const refused = await Promise.all(jobs.map((job) => rejectionOf(job.finished())));

    const reasons = statuses.map((status) => `was answered ${status} (some_code)`);
    expect(refused.map((error) => (error as JobFailedError).reason).toSorted()).toEqual(reasons);
    expect(api.calls).toHaveLength(4);
  });

  it("asks again after a 500, a connection that breaks, and an answer that breaks off", async () => {
    const broken: ((call: ApiCall) => ApiAnswer)[] = [
      () => refusal(500),
      () => streamed((response) => response.destroy()),
      () => streamed((response) => response.end(piece("Bec"))),
      () => streamed((response) => response.end(piece("Bec") + event({ error: { code: "x" } }))),
    ];
    const whole = piece("Because.", "stop");
    const api = await apis.start(
      (call, number) => broken[number]?.(call) ?? streamed((response) => response.end(whole)),
    );
    const queue = openQueue();
    const job = await queue.enqueue({ ...REQUEST, stream: true }, FAST);

    startWorker(api);
    const { text } = await job.finished<ChatResult>();

    expect(text).toBe("Because.");
    expect(api.calls).toHaveLength(5);
  });

  it("gives a job up that cannot be sent, and sends nothing", async () => {
    const api = await apis.start(() => completion("Because."));
    const problems: readonly (readonly [string, object])[] = [
      ["names no model", { messages: REQUEST.messages }],
      ["has no messages", { model: "gpt-test", messages: [] }],
      ["asks for more than one answer", { ...REQUEST, n: 2 }],
      ["has tools", { ...REQUEST, stream: true, tools: [] }],
    ];
    const requests = problems.map(([, request]) => request as ChatRequest);
    const jobs = await openQueue().enqueueMany(requests, FAST);

    startWorker(api);

    for (const [at, [problem]] of problems.entries()) {
      await expect(jobs[at]!.finished()).rejects.toThrow(`cannot be sent: it ${problem}`);
    }
    expect(api.calls).toEqual([]);
  });

  it("gives back on SIGTERM all tokens but those that were taken", async () => {
    const held: ServerResponse[] = [];
    const api = await apis.start(() => streamed((response) => void held.push(response)));
    // A quarter of a minute's tokens may leave at once: the first of them takes it.
    const few = { SLUICE_TOKENS_PER_MIN: String(4 * ESTIMATE) };
    const queue = openLlmQueue(sluices.open(), readSettings({ ...LIMITS, ...few }, LLM_QUEUE));
    await queue.enqueueMany(Array<ChatRequest>(3).fill({ ...REQUEST, stream: true }));
    const worker = startWorker(api, few);
    await waitUntil(() => held.length === 1, "one is asked for, and two wait for tokens");

    worker.signal("SIGTERM");
    await waitUntil(() => worker.stdout.includes("Closing"), "it has heard the signal");
    held[0]!.end(piece("Because.", "stop") + event({ choices: [], usage: USAGE }));
    expect(await worker.ended).toBe(0);

    await settled(queue, 30);
    expect(await queue.counts()).toMatchObject({ waiting: 2, active: 0, done: 1 });
  });

  it("logs neither its key, nor what was asked and answered", async () => {
    const api = await apis.start((_call, number) =>
      number === 0 ? refusal(500) : completion("secret-answer"),
    );
    const messages = [{ role: "user", content: "secret-question" }];
    const job = await openQueue().enqueue({ ...REQUEST, messages }, FAST);

    const worker = startWorker(api);
    await job.finished();
    await waitUntil(() => worker.stdout.includes("Answered."), "it is logged");

    expect(worker.stdout).toContain("was answered 500");
    expect(worker.stdout + worker.stderr).not.toMatch(/secret/);
  });
});

it("the settings of the LLM worker are refused, with a line for each that says what to give", async () => {
  const startRefused = (env: Environment): ScriptProcess =>
    startWorker({ url: "http://127.0.0.1:1" }, env);

  const faults = await faultsOfRefusal(
    [
      ["OPENAI_API_KEY", "", "is not set; give the key of the API"],
      ["OPENAI_BASE_URL", "ftp://me:password@localhost", "give an http or https address"],
      ["SLUICE_REQUESTS_PER_MIN", "0", "give a whole number of requests from 1 to 1000000"],
      ["SLUICE_TOKENS_PER_MIN", "many", 'is "many"; give a whole number of tokens from 1'],
    ],
    startRefused,
  );
  const spaced = "cannot be used; give printable ASCII characters";
  const again = await faultsOfRefusal([["OPENAI_API_KEY", "my password", spaced]], startRefused);

  expect([...faults, ...again]).toEqual([]);
});
