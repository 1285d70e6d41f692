import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { Webhook } from "standardwebhooks";
import { afterEach, beforeEach, describe, expect, inject, it } from "vitest";
import { createSluice } from "sluice";
import { startFakeDownstream, type FakeDownstream } from "sluice/testing";
import { createWebhooks, type PutEndpoint, type Webhooks } from "sluice/webhooks";
import { TOGETHER_MS } from "../../../workers/shared/run-worker.ts";
import { startRedis } from "../../support/redis/local-redis.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { freePort } from "../../support/redis/redis-port.ts";
import { scriptProcesses, type ScriptProcess } from "../../support/children/script-process.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { faultsOfRefusal, type RefusedSetting } from "../../support/jobs/worker-files.ts";
import { KEYS, LOCAL, openHooks, put, startReceiver } from "../../support/webhooks/open-hooks.ts";

const scripts = scriptProcesses();
const sluices = realSluices();
const REF = { tenant: "acme", id: "billing" };
const EVENT = { tenant: "acme", type: "invoice.paid" };
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

/** A producer of what the worker sends, with an endpoint. */
async function openProducer(endpoint: Partial<PutEndpoint> = {}): Promise<Webhooks> {
  const hooks = openHooks(sluices);
  await put(hooks, { ...REF, url: downstream.url, ...endpoint });
  return hooks;
}

function startWorker(env: Readonly<Record<string, string>> = {}): ScriptProcess {
  return scripts.start("workers/webhook-worker.ts", {
    env: {
      REDIS_URL: inject("redisUrl"),
      SLUICE_PREFIX: sluices.prefix(),
      SLUICE_WEBHOOK_KEYS: KEYS,
      SLUICE_ALLOW: "127.0.0.0/8,::1",
      SLUICE_ALLOW_HTTP: "true",
      LOG_LEVEL: "debug",
      ...env,
    },
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
  it("sends what a producer stored, as the receiver's own library verifies", async () => {
    const hooks = openHooks(sluices);
    const secret = await put(hooks, { ...REF, url: `${downstream.url}/hooks?a=1` });
    await hooks.send({ ...EVENT, data: { title: "naïve ☃" } });

    startWorker({ SLUICE_USER_AGENT: "acme/1" });
    await waitUntil(() => downstream.arrivals.length === 1, "the webhook has arrived");

    const { body, path, headers } = downstream.arrivals[0]!;
    const verified = new Webhook(secret).verify(body, headers as Record<string, string>);
    expect(verified).toMatchObject({ type: "invoice.paid", data: { title: "naïve ☃" } });
    expect({ path, agent: headers["user-agent"] }).toEqual({ path: "/hooks?a=1", agent: "acme/1" });
  });

  it("tries a webhook again by the schedule of its environment", async () => {
    failuresLeft = 2;
    const hooks = await openProducer();
    await hooks.send({ ...EVENT, data: 1 });

    startWorker({ SLUICE_SCHEDULE_MS: "0, 1, 1" });
    await waitUntil(
      () => downstream.arrivals.some(({ status }) => status === 200),
      "it is accepted",
    );

    expect(downstream.arrivals.map(({ status }) => status)).toEqual([500, 500, 200]);
  });

  it("keeps each endpoint to the rate of its environment, unless it has its own", async () => {
    const other = await startReceiver();
    const hooks = await openProducer();
    await put(hooks, { tenant: "acme", id: "other", url: other.url, rate: "1000/s" });
    for (let at = 0; at < 10; at++) await hooks.send({ ...EVENT, data: at });

    startWorker({ SLUICE_ENDPOINT_RATE: "1/h" });
    await waitUntil(() => other.arrivals.length === 10, "all have arrived at the other");
    await waitUntil(() => downstream.arrivals.length > 0, "one has arrived");

    expect(downstream.arrivals).toHaveLength(1);
  });

  it("keeps the endpoints of a tenant to the rate of its environment", async () => {
    const other = await startReceiver();
    const hooks = await openProducer();
    await put(hooks, { tenant: "acme", id: "second", url: downstream.url });
    await put(hooks, { tenant: "globex", id: "a", url: other.url });
    await hooks.send({ ...EVENT, data: 1 });
    await hooks.send({ ...EVENT, tenant: "globex", data: 1 });

    startWorker({ SLUICE_TENANT_RATE: "1/h" });
    await waitUntil(() => other.arrivals.length === 1, "one has arrived at the other tenant");
    await waitUntil(() => downstream.arrivals.length > 0, "one has arrived");

    expect(downstream.arrivals).toHaveLength(1);
  });

  it("gives an attempt up that gets no answer in time", async () => {
    const hooks = await openProducer({ url: await silentUrl(), scheduleMs: [0] });
    const { id } = await hooks.send({ ...EVENT, data: 1 });

    startWorker({ SLUICE_TIMEOUT_MS: "100" });
    const failed = async (): Promise<boolean> =>
      (await hooks.messages.get({ tenant: "acme", id }))?.endpoints["billing"] === "failed";
    await waitUntil(failed, "it has failed");

    const { entries } = await hooks.attempts.list({ tenant: "acme", message: id });
    expect(entries.map(({ outcome }) => outcome)).toEqual(["timeout"]);
  });

  it("sends nothing to this machine unless its environment allows it", async () => {
    const hooks = await openProducer({ scheduleMs: [0] });
    const { id } = await hooks.send({ ...EVENT, data: 1 });

    const worker = startWorker({ SLUICE_ALLOW: "" });
    await waitUntil(() => worker.stdout.includes("was blocked"), "it is blocked");
    const outcomes = async (): Promise<string[]> => {
      const { entries } = await hooks.attempts.list({ tenant: "acme", message: id });
      return entries.map(({ outcome }) => outcome);
    };
    // The log of attempts is written a moment later than what the process says.
    await waitUntil(async () => (await outcomes()).length > 0, "the attempt is noted");

    expect(await outcomes()).toEqual(["blocked"]);
    expect(downstream.arrivals).toEqual([]);
  });

  it("says in its log that an endpoint is disabled", async () => {
    const gone = await startFakeDownstream({ answer: () => 410 });
    const hooks = await openProducer({ url: gone.url });
    await hooks.send({ ...EVENT, data: 1 });

    const worker = startWorker();
    await waitUntil(() => worker.stdout.includes("An endpoint is disabled."), "it is logged");

    expect(worker.stdout).toContain('"tenant":"acme","endpoint":"billing","reason":"gone"');
    await gone.close();
  });

  it("logs no secret, no data, no header and no path", async () => {
    failuresLeft = 1;
    const url = `${downstream.url}/hidden-path?token=hidden-query`;
    const headers = { authorization: "hidden-header" };
    const secret = "whsec_aGlkZGVuLXNlY3JldC1oaWRkZW4tc2VjcmV0LWhpZGRlbg==";
    const hooks = await openProducer({ url, headers, secret, scheduleMs: [0] });
    await hooks.send({ ...EVENT, data: "hidden-data" });
    const worker = startWorker();
    await waitUntil(async () => (await hooks.queue.counts()).failed === 1, "it has failed");
    await hooks.send({ ...EVENT, data: "hidden-data" });
    await waitUntil(() => downstream.arrivals.length === 2, "another is delivered");

    worker.signal("SIGTERM");
    await worker.ended;

    expect(downstream.arrivals[0]!.headers["authorization"]).toBe("hidden-header");
    const written = worker.stdout + worker.stderr;
    expect(written).toContain("Not delivered after 1 of 1 attempts.");
    for (const hidden of ["hidden", secret, KEYS.slice(3)]) expect(written).not.toContain(hidden);
  });

  it("starts without a warning but that of what it allows", async () => {
    const worker = startWorker();
    await waitUntil(() => worker.stdout.includes("Started."), "the worker runs");
    const hooks = await openProducer();
    await hooks.send({ ...EVENT, data: 1 });
    await waitUntil(() => downstream.arrivals.length === 1, "the webhook has arrived");

    worker.signal("SIGTERM");
    expect(await worker.ended).toBe(0);

    const messages = [...worker.stdout.matchAll(/"level":[45]0.*"msg":"(.*)"/g)];
    expect(messages.map(([, message]) => message)).toEqual([
      String.raw`The webhook sender \"webhooks\" may send to private addresses: 127.0.0.0/8, ::1`,
      String.raw`The webhook sender \"webhooks\" may send without TLS.`,
    ]);
  });

  it("waits for a Redis that comes later", async () => {
    const port = await freePort("127.0.0.1");
    const worker = startWorker({ REDIS_URL: `redis://127.0.0.1:${port}` });
    await waitUntil(() => worker.stdout.includes("Started."), "the worker runs");

    const redis = await startRedis({ fresh: true, port });
    const sluice = createSluice({ redis: redis.url, prefix: sluices.prefix() });
    const hooks = createWebhooks(sluice, LOCAL);
    await put(hooks, { ...REF, url: downstream.url });
    await hooks.send({ ...EVENT, data: 1 });

    await waitUntil(() => downstream.arrivals.length === 1, "the webhook has arrived");
    worker.signal("SIGTERM");
    expect(await worker.ended).toBe(0);
    await sluice.close();
    await redis.stop();
  });
});

describe("a webhook worker that gets a stop signal", () => {
  it.each(["SIGTERM", "SIGINT"] as const)(
    "exits with 0 on %s, and leaves in the queue what it has not delivered",
    async (signal) => {
      const messages = 150;
      const hooks = await openProducer();
      for (let at = 0; at < messages; at++) await hooks.send({ ...EVENT, data: at });
      const worker = startWorker({ SLUICE_ENDPOINT_RATE: "50/s" });
      await waitUntil(() => downstream.arrivals.length >= 10, "some are delivered");

      worker.signal(signal);
      const exitCode = await worker.ended;

      expect({ exitCode, stderr: worker.stderr }).toEqual({ exitCode: 0, stderr: "" });
      const ids = downstream.arrivals.map(({ headers }) => headers["webhook-id"]);
      expect(ids).toHaveLength(new Set(ids).size);
      const left = { waiting: messages - ids.length, active: 0, delayed: 0, failed: 0 };
      expect(await hooks.queue.counts()).toMatchObject(left);
    },
  );

  it("exits with 1 at once on a second signal", async () => {
    const hooks = await openProducer({ url: await silentUrl() });
    await hooks.send({ ...EVENT, data: 1 });
    const worker = startWorker({ SLUICE_TIMEOUT_MS: "30000" });
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
  it("are refused together, with a line for each that says what to give", async () => {
    const rate = "write whole calls per time, from 1 to 1,000,000,000, such as";
    const faults = await faultsOfRefusal(
      [
        ["REDIS_URL", "", "is not set; give the address of Redis"],
        ["SLUICE_RATE", "fast", `${rate} "100/s"`],
        ["SLUICE_BURST", "0", "give a whole number of calls from 1"],
        ["SLUICE_WEBHOOK_KEYS", "", "is not set; give keys such as"],
        ["SLUICE_ALLOW_HTTP", "yes", "give true or false"],
        ["SLUICE_SCHEDULE_MS", "0,5s", "give waits in milliseconds, such as 0,5000,60000"],
        ["SLUICE_TENANT_PARALLEL", "many", "give a whole number of calls from 1 to 1000"],
        ["SLUICE_ENDPOINT_RATE", "fast", "write whole calls per time"],
        ["SLUICE_ENDPOINT_PARALLEL", "0", "give a whole number of calls from 1 to 1000"],
        ["SLUICE_CONCURRENCY", "many", 'is "many"; give a whole number of jobs from 1 to 100000'],
        ["SLUICE_QUEUE", "a:b", 'give 1 to 256 characters without "{", "}" and ":"'],
        ["LOG_LEVEL", "loud", "give one of fatal, error, warn, info, debug, trace, silent"],
      ],
      startWorker,
    );

    expect(faults).toEqual([]);
  });

  it.each<RefusedSetting>([
    ["REDIS_URL", "http://user:password@localhost", "give an address such as redis://"],
    ["SLUICE_WEBHOOK_KEYS", "k1:password", 'give "k1:" and 32 random bytes as base64'],
    ["SLUICE_ALLOW", "localhost", "or single addresses"],
    ["SLUICE_PROXY", "user:password@proxy", "give a URL such as"],
    ["SLUICE_TIMEOUT_MS", "60000", "give a whole number of milliseconds from 100 to 30000"],
    ["SLUICE_OPERATOR", "a b", "give 1 to 100 letters"],
  ])("are refused with a line that names %s when it is %j", async (...refused) => {
    expect(await faultsOfRefusal([refused], startWorker)).toEqual([]);
  });

  it("are refused by the name of the variable where two of them do not go together", async () => {
    const worker = startWorker({ SLUICE_SINGLE_TENANT: "true", SLUICE_TENANT_RATE: "5/s" });

    expect(await worker.ended).toBe(2);

    expect(worker.stderr).toMatch(
      /^SLUICE_TENANT_RATE cannot be used: .*the sender has only one tenant.*\n$/,
    );
  });
});
