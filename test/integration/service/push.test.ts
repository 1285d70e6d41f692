import { describe, expect, it, onTestFinished } from "vitest";
import { InvalidOptionError, type Queue } from "sluice";
import { startFakeDownstream, type FakeDownstream } from "sluice/testing";
import { createSecret, push, verify, type PushOptions } from "sluice/webhooks";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { services } from "../../support/server/service.ts";
import { closedUrl } from "../../support/servers/closed-url.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const sluices = realSluices();
const servers = services();
const SECRET = createSecret();
const HERE = { secret: SECRET, http: true, allow: ["127.0.0.1"] };

type Answer = NonNullable<Parameters<typeof startFakeDownstream>[0]>["answer"];

async function receiver(answer: Answer): Promise<FakeDownstream> {
  const started = await startFakeDownstream({ answer });
  onTestFinished(() => started.close());
  return started;
}

/** A queue whose jobs are pushed. */
function open(options: Partial<PushOptions> & Pick<PushOptions, "url">): Queue<object> {
  const sluice = sluices.open();
  const bucket = sluice.bucket("mail", { rate: "1000/s" });
  const queue = sluice.queue<object>("mail", { bucket });
  sluice.worker(queue, push({ ...HERE, ...options }), { lockMs: 1_000 });
  return queue;
}

describe("a queue that is pushed to a URL", () => {
  it("sends each job signed, and stores the JSON of a 2xx as its result", async () => {
    const { url, arrivals } = await receiver(() => ({ status: 201, body: '{"sent":1}' }));
    const queue = open({ url: `${url}/run?a=1`, headers: { "x-app": "mine" } });

    const job = await queue.enqueue({ to: "ann" }, { key: "acme", name: "hello" });
    const result = await job.finished();
    const { headers, body, path } = arrivals[0]!;
    const message = verify({ headers, body, secret: SECRET });

    expect(result).toEqual({ sent: 1 });
    expect(path).toBe("/run?a=1");
    expect(headers).toMatchObject({ "content-type": "application/json", "x-app": "mine" });
    expect(message.id).toMatch(/^job_/);
    expect(JSON.parse(body)).toMatchObject({
      id: job.id,
      data: { to: "ann" },
      key: "acme",
      name: "hello",
      attempt: 1,
    });
  });

  it("tries a failed job again with the same message id, and is done without a JSON result", async () => {
    const answers = [500, 302, 200];
    const { url, arrivals } = await receiver(() => ({ status: answers.shift()!, body: "ok" }));
    const queue = open({ url });

    const job = await queue.enqueue({}, { backoff: { baseMs: 1 } });
    const result = await job.finished();

    expect(result).toBeNull();
    expect(arrivals.map(({ status }) => status)).toEqual([500, 302, 200]);
    expect(new Set(arrivals.map(({ headers }) => headers["webhook-id"])).size).toBe(1);
  });

  it("quotes the response in the reason of a dead letter", async () => {
    const { url } = await receiver(() => ({ status: 422, body: "no such account" }));
    const queue = open({ url });

    const job = await queue.enqueue({}, { attempts: 1 });

    const host = new URL(url).host;
    await expect(job.finished()).rejects.toThrow(
      `${host} answered with status 422: no such account`,
    );
  });

  it("cools the bucket down for the Retry-After of a 503", async () => {
    const headers = { "retry-after": "600" };
    const { url } = await receiver(() => ({ status: 503, headers, body: "" }));
    const queue = open({ url });

    await queue.enqueue({});

    await waitUntil(async () => (await queue.bucket.peek()).coolingForMs > 500_000, "it cools");
    expect(await queue.counts()).toMatchObject({ delayed: 1 });
  });

  it("leaves a job to its receiver after a 202, until the receiver ends it with the receipt", async () => {
    const { url, arrivals } = await receiver(() => 202);
    const queue = open({ url, lockMs: 600_000 });
    const service = await servers.start(sluices.open());

    const job = await queue.enqueue({});
    await waitUntil(() => arrivals.length === 1, "the receiver has it");
    const { receipt } = JSON.parse(arrivals[0]!.body) as { readonly receipt: string };
    const extended = await service.post("/v1/queues/mail/extend", { receipt, lockMs: 600_000 });
    const { json } = await service.post("/v1/queues/mail/complete", { receipt, result: "later" });

    expect(extended.json).toEqual({ jobs: [{ id: job.id, state: "held" }] });
    expect(json).toEqual({ id: job.id, state: "done" });
    expect(await job.finished()).toBe("later");
    expect(arrivals).toHaveLength(1);
  });

  it("sends a job again if its receiver does not end it in time after a 202", async () => {
    const answers = [202, 200];
    const { url, arrivals } = await receiver(() => answers.shift());
    const queue = open({ url, lockMs: 1_000 });
    const service = await servers.start(sluices.open());

    const job = await queue.enqueue({});
    await job.finished();
    const { receipt } = JSON.parse(arrivals[0]!.body) as { readonly receipt: string };
    const late = await service.post("/v1/queues/mail/fail", { receipt, error: "late" });

    expect(arrivals).toHaveLength(2);
    expect([late.status, late.json.code]).toEqual([409, "ERR_JOB_LOST"]);
  }, 30_000);

  it("fails an accepted job when its time limit ends", async () => {
    const answers = [202, 200];
    const { url, arrivals } = await receiver(() => answers.shift());
    const queue = open({ url, lockMs: 86_400_000 });

    const job = await queue.enqueue({}, { timeoutMs: 500, backoff: { baseMs: 1 } });
    await job.finished();

    expect(JSON.parse(arrivals[1]!.body)).toMatchObject({ attempt: 2 });
  });

  it("retries an accepted job at the time that its receiver names", async () => {
    const answers = [202, 200];
    const { url, arrivals } = await receiver(() => answers.shift());
    const queue = open({ url, lockMs: 600_000 });
    const service = await servers.start(sluices.open());

    const job = await queue.enqueue({});
    await waitUntil(() => arrivals.length === 1, "the receiver has it");
    const { receipt } = JSON.parse(arrivals[0]!.body) as { readonly receipt: string };
    const error = { message: "busy", status: 429 };
    const failed = await service.post("/v1/queues/mail/fail", { receipt, error, retryAfterMs: 1 });
    await job.finished();

    expect(failed.json).toEqual({ id: job.id, state: "retried" });
    expect(JSON.parse(arrivals[1]!.body)).toMatchObject({ attempt: 2 });
  });

  it("never connects to an address that is not public and not allowed", async () => {
    const { url, arrivals } = await receiver(() => 200);
    const { port } = new URL(url);
    const resolve = async (): Promise<string[]> => ["127.0.0.1"];
    const queue = open({ url: `http://looks-public.example:${port}/`, allow: [], resolve });

    const job = await queue.enqueue({}, { attempts: 1 });

    await expect(job.finished()).rejects.toThrow("where webhooks may not go");
    expect(arrivals).toHaveLength(0);
  });

  it("fails an attempt if nothing listens at the URL", async () => {
    const queue = open({ url: await closedUrl() });

    const job = await queue.enqueue({}, { attempts: 1 });

    await expect(job.finished()).rejects.toThrow("ECONNREFUSED");
  });
});

describe("push() with options that can never work", () => {
  const url = "https://example.com/run";
  it.each([
    [{ secret: SECRET }, "url"],
    [{ url: "http://example.com", secret: SECRET }, "url"],
    [{ url: "https://127.0.0.1/", secret: SECRET }, "url"],
    [{ url: "https://localhost/", secret: SECRET }, "url"],
    [{ url: "https://u:p@example.com/", secret: SECRET }, "url"],
    [{ url }, "secret"],
    [{ url, secret: "short" }, "secret"],
    [{ url, secret: SECRET, headers: { "webhook-id": "1" } }, "headers"],
    [{ url, secret: SECRET, timeoutMs: 0 }, "timeoutMs"],
    [{ url, secret: SECRET, lockMs: 1 }, "lockMs"],
    [{ url, secret: SECRET, allow: ["anything"] }, "allow[0]"],
    [{ url, secret: SECRET, retries: 1 }, "retries"],
  ])("%#: is refused by the name of the option", (options, option) => {
    const refused = (): unknown => push(options as never);

    expect(refused).toThrow(InvalidOptionError);
    expect(refused).toThrow(expect.objectContaining({ option }));
    expect(refused).not.toThrow(SECRET);
  });
});
