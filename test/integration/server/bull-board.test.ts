import { describe, expect, it } from "vitest";
import type { Sluice } from "sluice";
import { waitUntil } from "../../support/async/wait-until.ts";
import { openBoards } from "../../support/server/boards.ts";
import {
  ACT,
  ask,
  CALL,
  openServers,
  VIEW,
  type Answer,
} from "../../support/server/open-server.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const SECRET = "4242-4242";
/** How long nobody waits. */
const HOUR_MS = 3_600_000;

const sluices = realSluices();
const servers = openServers();
const boards = openBoards();

async function openQueue(service: Sluice, name: string) {
  const bucket = service.bucket("stripe", { rate: "1000/s" });
  const queue = service.queue<{ readonly card: string }>(name, { bucket });
  const isReported = async (): Promise<boolean> =>
    (await service.overview()).queues.some((each) => each.name === name);
  await waitUntil(isReported, "it is told of");
  return queue;
}

/** A queue with a dead letter, and a server beside it that knows nothing of it by its own code. */
async function openDeadLetter() {
  const service = sluices.open({ logger: { warn() {}, error() {} } });
  const queue = await openQueue(service, "charges");
  const { id } = await queue.enqueue({ card: SECRET }, { attempts: 1, key: "acme" });
  const worker = service.worker(queue, async () => {
    throw new Error("declined");
  });
  await waitUntil(async () => (await queue.counts()).failed === 1, "it has failed");
  await worker.close();
  const { url } = await servers.open(sluices.open());
  return { service, queue, id, url: `${url}/jobs`, root: url };
}

async function openQueues(...names: readonly string[]) {
  const service = sluices.open();
  const queues = await Promise.all(names.map((name) => openQueue(service, name)));
  const { url } = await servers.open(sluices.open());
  const steer = (path: string, body?: unknown, method = "PUT"): Promise<Answer> =>
    ask(`${url}/jobs/api/queues/${path}`, { method, token: ACT, body });
  return { service, queue: queues[0]!, url: `${url}/jobs`, steer };
}

interface ShownQueue {
  readonly name: string;
  readonly counts: Readonly<Record<string, number>>;
  readonly readOnlyMode: boolean;
  readonly isPaused: boolean;
  readonly jobs: readonly { readonly id: string; readonly data: unknown }[];
}

async function shown(url: string, token = ACT, query = ""): Promise<readonly ShownQueue[]> {
  const { status, json } = await ask(`${url}/api/queues${query}`, { token });
  expect(status).toBe(200);
  return json.queues as readonly ShownQueue[];
}

describe("the page at /jobs", () => {
  it("is reached from the board, and shows a queue with its counts and its jobs, and those that come later", async () => {
    const { service, root } = await openDeadLetter();
    const { page, requests, errors } = await boards.open(root);
    await page.getByLabel("Token").fill(ACT);
    await page.getByLabel("Token").press("Enter");

    await page.getByRole("link", { name: "Jobs" }).click();
    await page.getByText("charges").first().waitFor();
    await openQueue(service, "mails");
    await page.getByText("mails").first().waitFor();
    await page.locator("a", { hasText: "FAILED" }).getByText("1").first().waitFor();
    await page.goto(`${root}/jobs/queue/charges?status=failed`);
    await page.getByRole("button", { name: "Retry all" }).waitFor();
    await page.getByText("Data", { exact: true }).click();

    await page.getByText(SECRET).first().waitFor();
    // The board was told to sign in first.
    expect(errors.filter((each) => !each.includes("401"))).toEqual([]);
    expect(requests.filter((asked) => !asked.startsWith(`${root}/`))).toEqual([]);
  });

  it("runs no script but its own files, and leaves the policy of the board as it was", async () => {
    const { url } = await openQueues("charges");

    const jobs = await ask(`${url}/queue/charges`, { token: VIEW });
    const board = await ask(new URL("/", url).href);

    const [ofJobs, ofBoard] = [jobs, board].map(
      ({ headers }) => headers["content-security-policy"],
    );
    expect(jobs.status).toBe(200);
    expect(ofJobs).toContain("script-src 'self';");
    expect(ofBoard).not.toContain("unsafe");
    expect(jobs.text).not.toMatch(/(?:src|href)="https?:|<%/);
  });

  it("sends a browser without a token to where it can sign in, and answers nothing to others", async () => {
    const { url } = await openQueues("charges");

    const page = await ask(url);
    const api = await ask(`${url}/api/queues`);
    const service = await ask(`${url}/api/queues`, { token: CALL });
    const elsewhere = await ask(`${url}/static/..%2f..%2fpackage.json`);

    expect([page.status, page.headers["location"]]).toEqual([302, "./"]);
    expect([api.status, service.status, elsewhere.status]).toEqual([401, 403, 404]);
  });
});

describe("what a token may do at /jobs", () => {
  it("shows no buttons to one that may look", async () => {
    const { root } = await openDeadLetter();
    const { page } = await boards.open(root);
    await page.getByLabel("Token").fill(VIEW);
    await page.getByLabel("Token").press("Enter");
    await page.getByRole("link", { name: "Jobs" }).waitFor();

    await page.goto(`${root}/jobs/queue/charges?status=failed`);
    await page.getByText("declined").first().waitFor();
    await page.getByText("Data", { exact: true }).click();
    await page.getByText("Hidden: only a token with the role act shows this.").first().waitFor();

    expect(await page.getByRole("button", { name: /retry|clean/i }).count()).toBe(0);
    expect(await page.content()).not.toContain(SECRET);
  });

  it("lets one that may look change nothing and see no data, and one that may act run a dead letter again", async () => {
    const { service, queue, id, url } = await openDeadLetter();
    const retry = `${url}/api/queues/charges/${id}/retry`;

    const refused = await ask(retry, { method: "PUT", token: VIEW });
    expect(refused).toMatchObject({
      status: 403,
      json: { error: expect.stringMatching(/may act/) },
    });
    expect((await queue.counts()).failed).toBe(1);
    const looked = await ask(`${url}/api/queues/charges/${id}`, { token: VIEW });
    expect(looked.json).toMatchObject({ status: "failed", job: { failedReason: "declined" } });
    const listed = await shown(url, VIEW, "?activeQueue=charges");
    expect(listed).toMatchObject([{ readOnlyMode: true, counts: { failed: 1 }, jobs: [{ id }] }]);
    expect(looked.text + JSON.stringify(listed)).not.toContain(SECRET);

    const seen = await ask(`${url}/api/queues/charges/${id}`, { token: ACT });
    expect(seen.json.job.data).toEqual({ card: SECRET });
    const retried = await ask(retry, { method: "PUT", token: ACT });
    expect(retried.status).toBe(204);
    const ran: unknown[] = [];
    service.worker(queue, async ({ data }) => void ran.push(data));
    await waitUntil(() => ran.length === 1, "it runs again");
    expect(ran).toEqual([{ card: SECRET }]);
  });

  it("hides what handlers log and what schedules hold from one that may only look", async () => {
    const { service, queue, url } = await openQueues("charges");
    const job = await queue.enqueue({ card: SECRET });
    service.worker(queue, async (_job, { log, progress }) => {
      await log(SECRET);
      await progress({ card: SECRET });
      return SECRET;
    });
    await job.finished();
    await queue.enqueue(
      { card: SECRET },
      { cron: "0 3 * * *", timeZone: "UTC", dedupeId: "nightly" },
    );

    const paths = [`queues/charges/${job.id}`, `queues/charges/${job.id}/logs`, "job-schedulers"];
    const looks = await Promise.all(
      paths.map((path) => ask(`${url}/api/${path}`, { token: VIEW })),
    );
    const acts = await Promise.all(paths.map((path) => ask(`${url}/api/${path}`, { token: ACT })));

    expect(looks.map(({ status }) => status)).toEqual([200, 200, 200]);
    expect(looks.map(({ text }) => text).join("")).not.toContain(SECRET);
    expect(acts.map(({ text }) => text.includes(SECRET))).toEqual([true, true, true]);
  });

  it("shows and changes only the queues of its token", async () => {
    const service = sluices.open();
    for (const name of ["charges", "mails"]) await openQueue(service, name);
    const token = "act-token-of-charges-alone";
    const tokens = [{ token, role: "act", queues: ["charges"] }] as const;
    const { url } = await servers.open(sluices.open(), { tokens });

    const listed = await shown(`${url}/jobs`, token, "?activeQueue=mails");
    const pause = (name: string): Promise<Answer> =>
      ask(`${url}/jobs/api/queues/${name}/pause`, { method: "PUT", token });
    const all = await ask(`${url}/jobs/api/queues/pause`, { method: "PUT", token });

    expect(listed.map(({ name }) => name)).toEqual(["charges"]);
    expect((await pause("mails")).status).toBe(403);
    expect((await pause("charges")).status).toBe(200);
    expect(all.status).toBe(200);
    expect(await (await service.findQueue("mails"))!.paused()).toEqual([]);
  });

  it("refuses what a page of another site has a signed-in browser send", async () => {
    const { url } = await openQueues("charges");
    const signedIn = await ask(new URL("/api/v1/session", url).href, { body: { token: ACT } });
    const [cookie] = String(signedIn.headers["set-cookie"]).split(";");
    const pause = (headers: Readonly<Record<string, string>>): Promise<Answer> =>
      ask(`${url}/api/queues/charges/pause`, {
        method: "PUT",
        headers: { cookie: cookie!, ...headers },
      });

    expect((await pause({ "sec-fetch-site": "cross-site" })).status).toBe(403);
    expect((await pause({ origin: "https://evil.example" })).status).toBe(403);
    expect((await pause({ "sec-fetch-site": "same-origin" })).status).toBe(200);
  });
});

describe("what is changed at /jobs", () => {
  it("is done by the queue itself: jobs of keys keep their lanes, and get other data, times and priorities", async () => {
    const { service, queue, steer } = await openQueues("charges");
    const add = (card: string, options = {}) =>
      queue.enqueue({ card }, { key: "acme", ...options });
    const edited = await add("edited");
    const [late, soon] = [await add("late"), await add("soon", { delayMs: HOUR_MS })];
    const gone = await add("gone");
    const urgent = await add("urgent", { priority: "low" });

    const answers = [
      await steer(`charges/${edited.id}/update-data`, { jobData: { card: "other" } }, "PATCH"),
      await steer(`charges/${late.id}/delay`, { runAt: Date.now() + HOUR_MS }, "PATCH"),
      await steer(`charges/${soon.id}/promote`),
      await steer(`charges/${gone.id}/clean`),
      await steer(`charges/${urgent.id}/priority`, { priority: 1 }, "PATCH"),
      await steer("charges/add", { name: "", data: { card: "added" }, options: {} }, "POST"),
    ];

    expect(answers.map(({ status }) => status)).toEqual([200, 200, 204, 204, 200, 200]);
    const ran: string[] = [];
    service.worker(queue, async ({ data }) => void ran.push(data.card), { concurrency: 1 });
    await waitUntil(() => ran.length === 4, "they have run");
    expect(ran.filter((card) => card !== "added")).toEqual(["urgent", "other", "soon"]);
    expect(await late.state()).toBe("delayed");
  });

  it("pauses, resumes and empties a queue, and removes its dead letters and schedules", async () => {
    const { queue, url, id: failed } = await openDeadLetter();
    const steer = (path: string): Promise<Answer> =>
      ask(`${url}/api/queues/charges/${path}`, { method: "PUT", token: ACT });
    await queue.enqueue({ card: "1" }, { key: "acme" });
    await queue.enqueue({ card: "2" }, { cron: "0 3 * * *", timeZone: "UTC", dedupeId: "nightly" });

    expect((await steer("pause")).status).toBe(200);
    expect(await queue.paused()).toHaveLength(1);
    expect(await shown(url)).toMatchObject([{ isPaused: true }]);
    expect((await steer("obliterate")).status).toBe(409);
    expect(await queue.counts()).toMatchObject({ waiting: 1, delayed: 1, failed: 1 });
    expect((await steer("resume")).status).toBe(200);
    expect(await queue.paused()).toEqual([]);
    expect((await steer("empty")).status).toBe(200);
    expect((await queue.counts()).waiting).toBe(0);
    expect(await queue.schedules()).toHaveLength(1);
    expect((await steer("job-schedulers/nightly/remove")).status).toBe(204);
    expect(await queue.schedules()).toEqual([]);
    expect((await steer("clean/failed")).status).toBe(200);
    expect(await queue.job(failed)).toBeUndefined();
  });

  it("cleans only jobs of the state that is named, of keys too", async () => {
    const { queue, steer } = await openQueues("charges");
    const waiting = await queue.enqueue({ card: "1" }, { key: "acme" });
    await queue.enqueue({ card: "2" }, { key: "acme", delayMs: HOUR_MS });

    const cleaned = await steer("charges/clean/delayed");

    expect(cleaned.status).toBe(200);
    expect(await queue.counts()).toMatchObject({ waiting: 1, delayed: 0 });
    expect(await waiting.state()).toBe("waiting");
    await steer("charges/clean/prioritized");
    expect(await queue.counts()).toMatchObject({ waiting: 0 });
    expect((await queue.status()).lanes).toEqual([]);
  });

  it("says why it does not do what Sluice has otherwise, and changes nothing", async () => {
    const { service, queue, steer } = await openQueues("charges");
    const done = await queue.enqueue({ card: "1" });
    let runs = 0;
    const worker = service.worker(queue, async () => void (runs += 1));
    await done.finished();
    await worker.close();
    await queue.enqueue({ card: "2" }, { cron: "0 3 * * *", timeZone: "UTC", dedupeId: "nightly" });
    const [before] = await queue.schedules();

    const answers = [
      await steer(`charges/${done.id}/retry`),
      await steer("charges/retry/completed"),
      await steer("charges/clean/active"),
      await steer("charges/rate-limit", { max: 1, duration: 1_000 }),
      await steer("charges/job-schedulers/nightly", { every: 1_000 }, "PATCH"),
      await steer("charges/job-schedulers/nightly/run"),
      await steer("charges/add", { name: "", data: 1, options: { lifo: true } }, "POST"),
    ];

    expect(answers.map(({ status }) => status)).toEqual([409, 409, 409, 400, 405, 405, 400]);
    expect(answers[0]!.json.error).toBe("A completed job cannot run again. Enqueue a new one.");
    expect(await queue.counts()).toMatchObject({ waiting: 0, done: 1 });
    expect(await queue.schedules()).toEqual([before]);
    expect(runs).toBe(1);
  });
});
