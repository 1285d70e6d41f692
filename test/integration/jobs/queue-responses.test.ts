import { get, type IncomingMessage } from "node:http";
import { once } from "node:events";
import axios from "axios";
import got from "got";
import ky from "ky";
import { request } from "undici";
import { beforeEach, describe, expect, it } from "vitest";
import { HandlerResponseError, type BucketOptions, type WorkerOptions } from "sluice";
import { useBuiltSandbox } from "../../support/children/built-sandbox.ts";
import { fakeApis, type ApiAnswer, type FakeApi } from "../../support/servers/fake-api.ts";
import { openAtWork } from "../../support/jobs/open-queue.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const sluices = realSluices();
const apis = fakeApis();
const RETRIED = { attempts: 2, backoff: { baseMs: 1 } } as const;
const REFUSED: ApiAnswer = { status: 429, headers: { "retry-after-ms": "20" }, body: "slow down" };

/** An API that fails once, and then is well. */
function startApi(first: ApiAnswer): Promise<FakeApi> {
  return apis.start((_call, number) => (number === 0 ? first : { body: "hello" }));
}

const clients: readonly [string, (url: string) => unknown][] = [
  ["fetch", (url) => fetch(url)],
  ["undici's request", (url) => request(url)],
  ["axios that takes any status", (url) => axios.get(url, { validateStatus: () => true })],
  ["got that throws nothing", (url) => got(url, { throwHttpErrors: false, retry: { limit: 0 } })],
  ["ky that throws nothing", (url) => ky.get(url, { throwHttpErrors: false, retry: 0 })],
  [
    "a client that returns the response beside its data",
    async (url) => {
      const response = await fetch(url);
      return { data: undefined, error: await response.text(), response };
    },
  ],
  [
    "node:http",
    async (url) => {
      const [response] = (await once(get(url), "response")) as [IncomingMessage];
      return response.resume();
    },
  ],
];

describe("a job whose handler returns a refused or failed response", () => {
  it.each(clients)("is retried after a 500: %s", async (_client, call) => {
    const api = await startApi({ status: 500 });
    const { queue } = openAtWork(sluices, () => call(api.url));

    const job = await queue.enqueue("a", RETRIED);
    await job.finished();

    expect(api.calls.map(({ status }) => status)).toEqual([500, 200]);
  });

  it.each(clients)(
    "cools its bucket down after a 429, and is retried: %s",
    async (_client, call) => {
      const api = await startApi(REFUSED);
      const { queue, bucket } = openAtWork(sluices, () => call(api.url));
      const cooled: unknown[] = [];
      bucket.on("cooldown", (event) => void cooled.push(event));

      const job = await queue.enqueue("a", RETRIED);
      await job.finished();

      expect(api.calls.map(({ status }) => status)).toEqual([429, 200]);
      expect(cooled).toHaveLength(1);
    },
  );

  it("is a dead letter with a reason when no attempt is left", async () => {
    const api = await apis.start(() => ({ status: 422, body: "no such card" }));
    const { queue, errors } = openAtWork(sluices, () => fetch(api.url));

    const job = await queue.enqueue("a", { attempts: 1 });
    const error = (await rejectionOf(job.finished())) as Error;

    expect(error.message).toContain("a response with status 422");
    expect(error.message).toContain("failOnResponse: false");
    expect(error.cause).toMatchObject({ code: "ERR_HANDLER_RESPONSE", status: 422 });
    await waitUntil(() => errors.length === 1, "it is logged");
  });

  it("fails by a refusal with status 200 too", async () => {
    const body = JSON.stringify({ errors: [{ type: "RATE_LIMITED", message: "later" }] });
    const headers = { "content-type": "application/graphql-response+json" };
    const api = await startApi({ status: 200, headers, body });
    const { queue } = openAtWork(sluices, () => fetch(api.url));

    await (await queue.enqueue("a", RETRIED)).finished();

    expect(api.calls).toHaveLength(2);
  });

  it("fails by the client's own form of a rejection", async () => {
    let calls = 0;
    const { queue } = openAtWork(sluices, async () => {
      calls += 1;
      return calls === 1 ? { ok: false, error: "ratelimited" } : { ok: true };
    });

    expect(await (await queue.enqueue("a", RETRIED)).finished()).toEqual({ ok: true });
  });

  it("fails in a batch by itself", async () => {
    const api = await startApi({ status: 500 });
    const sluice = sluices.open();
    const bucket = sluice.bucket("downstream", { rate: "500/s" });
    const queue = sluice.queue<string>("jobs", { bucket });
    sluice.worker(queue, (jobs) => Promise.all(jobs.map(() => fetch(api.url))), {
      batch: { size: 2 },
    });

    const jobs = await queue.enqueueMany(["a", "b"], RETRIED);
    await Promise.all(jobs.map((job) => job.finished()));

    expect(api.withStatus(500)).toHaveLength(1);
    expect(api.withStatus(200)).toHaveLength(2);
  });
});

describe("a job that is done", () => {
  const openOn = (
    handler: () => unknown,
    options?: WorkerOptions,
    policy?: Partial<BucketOptions>,
  ) => openAtWork(sluices, handler, { ...(options && { options }), ...(policy && { policy }) });

  it.each<[string, () => unknown]>([
    ["a response that went well", () => new Response("hello")],
    ["a redirect", () => new Response(null, { status: 304 })],
    ["data with a status and no headers", () => ({ status: 500, id: 7 })],
    ["a number", () => 500],
    ["data about a failed call", () => ({ call: { status: 500, headers: {} } })],
    ["a list of responses", () => [new Response("", { status: 500 })]],
  ])("has returned %s", async (_what, handler) => {
    const { queue } = openOn(handler);

    await (await queue.enqueue("a", { attempts: 1 })).finished();

    expect(await queue.counts()).toMatchObject({ failed: 0 });
  });

  it("has returned any response where the worker's option is off, and the bucket still reads it", async () => {
    const refused = new Response("", { status: 429, headers: { "retry-after": "60" } });
    const { queue, bucket } = openOn(() => refused, { failOnResponse: false });

    await (await queue.enqueue("a", { attempts: 1 })).finished();

    await waitUntil(async () => (await bucket.peek()).coolingForMs > 0, "it cools down");
    expect(await queue.counts()).toMatchObject({ failed: 0 });
  });

  it("has returned a response that the bucket's feedback reads as a pause, and not as a rejection", async () => {
    const { queue } = openOn(() => "BUSY", undefined, {
      feedback: (result) => (result === "BUSY" ? { coolMs: 1 } : undefined),
    });

    expect(await (await queue.enqueue("a", { attempts: 1 })).finished()).toBe("BUSY");
  });

  it("has a worker whose option is refused unless it is a boolean", () => {
    expect(() => openOn(() => 1, { failOnResponse: "no" as never })).toThrow(
      /failOnResponse.*give true or false/,
    );
  });
});

describe("a handler in a file", () => {
  beforeEach(useBuiltSandbox);

  it.each([
    [undefined, 1],
    [false, 0],
  ])("fails by its returned response, with failOnResponse %s", async (failOnResponse, failed) => {
    const api = await apis.start(() => ({ status: 500 }));
    const sluice = sluices.open();
    const bucket = sluice.bucket("downstream", { rate: "500/s" });
    const queue = sluice.queue<{ do: string; url: string }>("jobs", { bucket });
    const file = new URL("../../support/handlers/many-ways.mjs", import.meta.url);
    sluice.worker(queue, file, { concurrency: 1, failOnResponse });

    const job = await queue.enqueue({ do: "fetch", url: api.url }, { attempts: 1 });
    const ended = await job.finished().catch((error: unknown) => error);

    expect(ended instanceof Error).toBe(failed === 1);
    expect(await queue.counts()).toMatchObject({ failed });
  });
});

describe("HandlerResponseError", () => {
  it("has the status, and what was returned as its cause", () => {
    const response = new Response("", { status: 503 });

    const error = new HandlerResponseError(503, { cause: response });

    expect(error).toMatchObject({ status: 503, cause: response, code: "ERR_HANDLER_RESPONSE" });
  });
});
