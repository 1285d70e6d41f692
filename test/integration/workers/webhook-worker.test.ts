import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, beforeEach, describe, expect, inject, it } from "vitest";
import { createSluice, type Queue } from "sluice";
import { startFakeDownstream, type FakeDownstream } from "sluice/testing";
import type { Webhook } from "../../../workers/webhook/deliver.ts";
import { TOGETHER_MS } from "../../../workers/shared/run-worker.ts";
import { startRedis } from "../../support/redis/local-redis.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { freePort } from "../../support/redis/redis-port.ts";
import { scriptProcesses, type ScriptProcess } from "../../support/children/script-process.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const RATE = "200/s";
const scripts = scriptProcesses();
const sluices = realSluices();
let downstream: FakeDownstream;
let failuresLeft: number;
let silent: Server | undefined;
let unanswered: number;

beforeEach(async () => {
  failuresLeft = 0;
  unanswered = 0;
  downstream = await startFakeDownstream({
    answer: () => (failuresLeft-- > 0 ? 500 : undefined),
  });
});
afterEach(async () => {
  await downstream.close();
  silent?.closeAllConnections();
  silent?.close();
});

function openQueue(rate = RATE): Queue<Webhook> {
  const sluice = sluices.open();
  return sluice.queue<Webhook>("webhooks", { bucket: sluice.bucket("webhooks", { rate }) });
}

function startWorker(env: Readonly<Record<string, string>> = {}): ScriptProcess {
  const redis = { REDIS_URL: inject("redisUrl"), SLUICE_PREFIX: sluices.prefix() };
  return scripts.start("workers/webhook-worker.ts", {
    isBuilt: true,
    env: { ...redis, SLUICE_RATE: RATE, LOG_LEVEL: "debug", ...env },
  });
}

/** The address of a server that takes calls and never answers. */
async function silentUrl(): Promise<string> {
  const server = createServer(() => (unanswered += 1));
  silent = server;
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

describe("the webhook worker", () => {
  it("posts the payload as JSON to its address, with the headers of the job", async () => {
    const payload = { action: "opened", title: "naïve ☃" };
    const headers = { "X-GitHub-Event": "issues", "content-type": "application/vnd.github+json" };
    await openQueue().enqueue({ url: `${downstream.url}/hooks?a=1`, payload, headers });

    startWorker();
    await waitUntil(() => downstream.arrivals.length === 1, "the webhook has arrived");

    const [arrival] = downstream.arrivals;
    expect(JSON.parse(arrival!.body)).toEqual(payload);
    expect(arrival).toMatchObject({
      path: "/hooks?a=1",
      headers: { "x-github-event": "issues", "content-type": "application/vnd.github+json" },
    });
  });

  it("tries a webhook again that was answered 500", async () => {
    failuresLeft = 2;
    const queue = openQueue();
    const webhook = { url: downstream.url, payload: {} };
    await queue.enqueue(webhook, { attempts: 3, backoff: { baseMs: 1 } });

    startWorker();
    await waitUntil(
      () => downstream.arrivals.some(({ status }) => status === 200),
      "it is accepted",
    );

    expect(downstream.arrivals.map(({ status }) => status)).toEqual([500, 500, 200]);
  });

  it("gives a webhook up that gets no answer in time", async () => {
    const queue = openQueue();
    await queue.enqueue({ url: await silentUrl(), payload: {} }, { attempts: 1 });

    const worker = startWorker({ SLUICE_TIMEOUT_MS: "50" });
    await waitUntil(async () => (await queue.counts()).failed === 1, "the job has failed");

    worker.signal("SIGTERM");
    await worker.ended;
    expect(worker.stdout).toContain("got no answer within 50 ms");
  });

  it("gives a webhook up at once that can never be sent", async () => {
    const job = await openQueue().enqueue({ url: "ftp://localhost", payload: {} });

    startWorker();

    await expect(job.finished()).rejects.toThrow("its url is not an http or https address");
  });

  it("logs no payload, no header, and of an address its host only", async () => {
    const url = `${downstream.url}/secret-path?token=secret-query`;
    const headers = { authorization: "secret-header", "x-broken": "secret-line\r\nbreak" };
    const queue = openQueue();
    await queue.enqueue({ url, payload: "secret-payload", headers }, { attempts: 1 });
    await queue.enqueue({ url, payload: "secret-payload" });

    const worker = startWorker();
    await waitUntil(
      () => ["Delivered.", "Not delivered."].every((text) => worker.stdout.includes(text)),
      "both jobs are logged",
    );

    expect(worker.stdout).toContain(downstream.url);
    expect(worker.stdout + worker.stderr).not.toContain("secret");
  });

  it("waits for a Redis that comes later", async () => {
    const port = await freePort("127.0.0.1");
    const worker = startWorker({ REDIS_URL: `redis://127.0.0.1:${port}` });
    await waitUntil(() => worker.stdout.includes("Started."), "the worker runs");

    const redis = await startRedis({ fresh: true, port });
    const sluice = createSluice({ redis: redis.url, prefix: sluices.prefix() });
    const bucket = sluice.bucket("webhooks", { rate: RATE });
    const queue = sluice.queue<Webhook>("webhooks", { bucket });
    await queue.enqueue({ url: downstream.url, payload: {} });

    await waitUntil(() => downstream.arrivals.length === 1, "the webhook has arrived");
    worker.signal("SIGTERM");
    expect(await worker.ended).toBe(0);
    await sluice.close();
    await redis.stop();
  });
});

describe("a webhook worker that is told to end", () => {
  it.each(["SIGTERM", "SIGINT"] as const)(
    "exits with 0 on %s, and leaves in the queue what it has not delivered",
    async (signal) => {
      const jobs = 300;
      const queue = openQueue("50/s");
      const ids = Array.from({ length: jobs }, (_, index) => ({ "x-id": String(index) }));
      await queue.enqueueMany(
        ids.map((headers) => ({ url: downstream.url, payload: {}, headers })),
      );
      const worker = startWorker({ SLUICE_RATE: "50/s" });
      await waitUntil(() => downstream.arrivals.length >= 10, "some are delivered");

      worker.signal(signal);
      const exitCode = await worker.ended;

      expect({ exitCode, stderr: worker.stderr }).toEqual({ exitCode: 0, stderr: "" });
      const delivered = new Set(downstream.arrivals.map(({ headers }) => headers["x-id"])).size;
      expect(downstream.arrivals.length).toBe(delivered);
      const left = { waiting: jobs - delivered, active: 0, delayed: 0, failed: 0 };
      expect(await queue.counts()).toMatchObject(left);
    },
  );

  it("exits with 1 at once on a second signal", async () => {
    const queue = openQueue();
    await queue.enqueue({ url: await silentUrl(), payload: {} });
    const worker = startWorker({ SLUICE_TIMEOUT_MS: "600000" });
    await waitUntil(() => unanswered === 1, "the delivery is under way");

    worker.signal("SIGTERM");
    await waitUntil(() => worker.stdout.includes("Closing"), "it has heard the first");
    const firstAtMs = performance.now();
    await waitUntil(
      () => performance.now() - firstAtMs > TOGETHER_MS,
      "another signal is no longer taken for the same Ctrl-C",
    );
    worker.signal("SIGTERM");

    expect(await worker.ended).toBe(1);
  });
});

describe("the settings of the webhook worker", () => {
  it.each([
    ["REDIS_URL", "", "is not set; give the address of Redis"],
    ["REDIS_URL", "http://user:password@localhost", "give an address such as redis://"],
    ["SLUICE_RATE", "fast", 'write whole calls per time, from 1 to 1,000,000,000, such as "100/s"'],
    ["SLUICE_BURST", "0", "give a whole number of calls from 1"],
    ["SLUICE_CONCURRENCY", "many", 'is "many"; give a whole number of jobs from 1 to 100000'],
    ["SLUICE_QUEUE", "a:b", 'give 1 to 256 characters without "{", "}" and ":"'],
    ["LOG_LEVEL", "loud", "give one of fatal, error, warn, info, debug, trace, silent"],
  ])("are refused with a line that names %s when it is %j", async (variable, value, remedy) => {
    const worker = startWorker({ [variable]: value });

    expect(await worker.ended).toBe(2);

    expect(worker.stderr.trimEnd().split("\n")).toHaveLength(1);
    expect(worker.stderr).toContain(variable);
    expect(worker.stderr).toContain(remedy);
    expect(worker.stderr).not.toContain("password");
  });
});
