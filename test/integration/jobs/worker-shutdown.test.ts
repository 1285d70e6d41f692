import type { ServerResponse } from "node:http";
import { describe, expect, it } from "vitest";
import type { Queue, Sluice } from "sluice";
import { answerChat } from "../../../examples/stand-ins/chat.ts";
import { createPayments } from "../../../examples/stand-ins/payments.ts";
import { json, type StandInAnswer, type StandInCall } from "../../../examples/stand-ins/server.ts";
import { LLM_QUEUE, openLlmQueue, type ChatRequest } from "../../../workers/llm/queue.ts";
import { openPaymentQueue, PAYMENT_QUEUE } from "../../../workers/payment/queue.ts";
import { readSettings } from "../../../workers/shared/settings.ts";
import { TOGETHER_MS } from "../../../workers/shared/run-worker.ts";
import { openWebhooks, WEBHOOK_SENDER } from "../../../workers/webhook/sender.ts";
import { fakeApis, type FakeApi } from "../../support/servers/fake-api.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import type { ScriptProcess } from "../../support/children/script-process.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { workerFiles, type Environment } from "../../support/jobs/worker-files.ts";
import { KEYS, SILENT } from "../../support/webhooks/open-hooks.ts";

/** One of the workers, and a downstream that it knows. */
interface Kind {
  readonly name: string;
  /** The signal that ends it at once; the code that waits for signals is the same in all workers. */
  readonly second: NodeJS.Signals;
  /** Its limits, and where its downstream is. */
  readonly env: (url: string) => Environment;
  /** Stores jobs that can be told apart by their numbers, with one attempt each, none of which an end of a worker may use up. */
  readonly store: (
    sluice: Sluice,
    where: { readonly env: Environment; readonly url: string; readonly numbers: readonly number[] },
  ) => Promise<Queue<unknown>>;
  readonly answer: (call: StandInCall) => StandInAnswer;
  readonly numberOf: (call: StandInCall) => number;
}

const JOBS = 6;
const payments = createPayments();
const KINDS: readonly Kind[] = [
  {
    name: "webhook",
    second: "SIGTERM",
    env: () => ({
      SLUICE_RATE: "200/s",
      SLUICE_WEBHOOK_KEYS: KEYS,
      SLUICE_ALLOW: "127.0.0.0/8",
      SLUICE_ALLOW_HTTP: "true",
      SLUICE_SCHEDULE_MS: "0",
    }),
    async store(sluice, { env, url, numbers }) {
      const hooks = openWebhooks(sluice, readSettings(env, WEBHOOK_SENDER));
      await hooks.endpoints.put({ tenant: "acme", id: "billing", url });
      for (const data of numbers) await hooks.send({ tenant: "acme", type: "note.made", data });
      return hooks.queue as Queue<unknown>;
    },
    answer: () => json(200, {}),
    numberOf: ({ body }) => (JSON.parse(body) as { data: number }).data,
  },
  {
    name: "llm",
    second: "SIGINT",
    env: (url) => ({
      SLUICE_REQUESTS_PER_MIN: "12000",
      OPENAI_API_KEY: "sk-test",
      OPENAI_BASE_URL: `${url}/v1`,
    }),
    async store(sluice, { env, numbers }) {
      const queue = openLlmQueue(sluice, readSettings(env, LLM_QUEUE));
      const requests = numbers.map((number) => ({
        model: "gpt-test",
        messages: [{ role: "user", content: String(number) }],
        stream: number % 2 === 0,
      }));
      await queue.enqueueMany(requests, { attempts: 1 });
      return queue as Queue<unknown>;
    },
    answer: answerChat,
    numberOf: ({ body }) => Number((JSON.parse(body) as ChatRequest).messages[0]!.content),
  },
  {
    name: "payment",
    second: "SIGTERM",
    env: (url) => ({
      SLUICE_RATE: "200/s",
      STRIPE_SECRET_KEY: "sk_test_1",
      STRIPE_BASE_URL: url,
    }),
    async store(sluice, { env, numbers }) {
      const queue = openPaymentQueue(sluice, readSettings(env, PAYMENT_QUEUE));
      const charges = numbers.map((amount) => ({ charge: { amount, currency: "eur" } }));
      await queue.enqueueMany(charges, { attempts: 1 });
      return queue as Queue<unknown>;
    },
    answer: (call) => payments.answer(call),
    numberOf: ({ body }) => Number(new URLSearchParams(body).get("amount")),
  },
];

const sluices = realSluices();
const workers = workerFiles(sluices);
const apis = fakeApis();

/** A downstream that keeps its callers waiting until it is told to answer. */
interface Stage {
  readonly api: FakeApi;
  readonly queue: Queue<unknown>;
  readonly startWorker: () => ScriptProcess;
  /** Answers all that wait, and from now on at once. */
  readonly release: () => void;
  /** Which jobs the downstream was asked for, in order of their numbers. */
  readonly asked: () => number[];
}

async function openStage(kind: Kind, more: Environment = {}): Promise<Stage> {
  let held: ((() => void) | undefined)[] | undefined = [];
  const api = await apis.start((call) => {
    const { body, ...answer } = kind.answer(call);
    const end = (response: ServerResponse): void => void response.end(body.join(""));
    const stream = (response: ServerResponse): void => {
      if (held === undefined) end(response);
      else held.push(() => end(response));
    };
    return { ...answer, stream };
  });
  const env = { ...kind.env(api.url), ...more };
  const numbers = Array.from({ length: JOBS }, (_, index) => index + 1);
  const queue = await kind.store(sluices.open({ logger: SILENT }), { env, url: api.url, numbers });
  return {
    api,
    queue,
    startWorker: () => workers.start(`${kind.name}-worker.ts`, env),
    release() {
      for (const end of held ?? []) end?.();
      held = undefined;
    },
    asked: () => api.calls.map((call) => kind.numberOf(call)).sort((a, b) => a - b),
  };
}

/** The first signal, and a second one that is not taken for the same. */
async function signalTwice(worker: ScriptProcess, second: NodeJS.Signals): Promise<void> {
  worker.signal("SIGTERM");
  await waitUntil(() => worker.stdout.includes("Closing"), "it has heard the first signal");
  const heardAtMs = performance.now();
  await waitUntil(() => performance.now() - heardAtMs > TOGETHER_MS, "signals are two");
  worker.signal(second);
}

const allDone = { waiting: 0, active: 0, delayed: 0, done: JOBS, failed: 0 };

describe.each(KINDS)("the $name worker", (kind) => {
  it("ends running calls on SIGTERM, and gives back everything else: jobs, slots, leases", async () => {
    const stage = await openStage(kind, { SLUICE_MAX_PARALLEL: "2" });
    const { api, queue } = stage;
    const worker = stage.startWorker();
    await waitUntil(() => api.calls.length === 2, "as many are under way as may be");

    worker.signal("SIGTERM");
    await waitUntil(() => worker.stdout.includes("Closing"), "it has heard the signal");
    stage.release();
    const exitCode = await worker.ended;

    expect({ exitCode, stderr: worker.stderr }).toEqual({ exitCode: 0, stderr: "" });
    expect(api.calls).toHaveLength(2);
    const left = { waiting: JOBS - 2, active: 0, delayed: 0, done: 2, failed: 0 };
    expect(await queue.counts()).toEqual(left);
    const { limits } = await queue.bucket.peek();
    expect(limits.find(({ name }) => name === "2 at once")?.level).toBe(0);

    stage.startWorker();
    await waitUntil(async () => (await queue.counts()).done === JOBS, "all are done");
    expect(stage.asked()).toEqual([1, 2, 3, 4, 5, 6]);
  });

  it("leaves calls that outlast its deadline to another worker", async () => {
    const env = { SLUICE_CLOSE_DEADLINE_MS: "50", SLUICE_LOCK_MS: "1000" };
    const stage = await openStage(kind, env);
    const { api, queue } = stage;
    const worker = stage.startWorker();
    await waitUntil(() => api.calls.length === JOBS, "all are under way");

    worker.signal("SIGTERM");
    expect(await worker.ended).toBe(0);
    stage.release();
    stage.startWorker();
    const ended = async (): Promise<number> => {
      const { done, failed } = await queue.counts();
      return done + failed;
    };
    await waitUntil(async () => (await ended()) === JOBS, "all have ended");

    expect(await queue.counts()).toEqual(allDone);
    expect(new Set(stage.asked()).size).toBe(JOBS);
  });

  it(`ends immediately on a second signal, ${kind.second}, and nothing is lost`, async () => {
    const stage = await openStage(kind, { SLUICE_LOCK_MS: "1000", SLUICE_CONCURRENCY: "3" });
    const { api, queue } = stage;
    const worker = stage.startWorker();
    await waitUntil(() => api.calls.length === 3, "some are under way");

    await signalTwice(worker, kind.second);
    expect(await worker.ended).toBe(1);
    stage.release();
    stage.startWorker();
    await waitUntil(async () => (await queue.counts()).done === JOBS, "all are done");

    expect(await queue.counts()).toEqual(allDone);
    expect(stage.asked()).toEqual([1, 1, 2, 2, 3, 3, 4, 5, 6]);
  });
});
