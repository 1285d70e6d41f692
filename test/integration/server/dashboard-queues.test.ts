import { describe, expect, it } from "vitest";
import { waitUntil } from "../../support/async/wait-until.ts";
import { flawsOf, openBoards } from "../../support/server/boards.ts";
import { openServers, VIEW } from "../../support/server/open-server.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const HOSTILE = `<img src=x onerror="window.hurt=1"><script>window.hurt=1</script>`;

/** How many lines of text the first dead letter takes. */
const LINES = `(() => {
  const bodies = document.querySelectorAll('[aria-label="Dead letters"] tbody');
  const row = bodies[bodies.length - 1].querySelector('tr');
  const texts = document.createTreeWalker(row, NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  const centres = [];
  while (texts.nextNode()) {
    range.selectNodeContents(texts.currentNode);
    for (const { top, bottom } of range.getClientRects()) centres.push((top + bottom) / 2);
  }
  centres.sort((one, other) => one - other);
  return centres.filter((centre, at) => at === 0 || centre - centres[at - 1] > 6).length;
})()`;

const sluices = realSluices();
const servers = openServers();
const boards = openBoards();

/** A queue with a dead letter, and a server beside it. */
async function openQueueBoard() {
  const service = sluices.open({ logger: { warn() {}, error() {} } });
  const bucket = service.bucket("stripe", { rate: "1000/s" });
  const queue = service.queue<{ readonly card: string }>("charges", { bucket });
  const { id } = await queue.enqueue({ card: HOSTILE }, { attempts: 1, key: HOSTILE });
  const worker = service.worker(queue, async () => {
    throw new Error(`declined ${HOSTILE}`);
  });
  await waitUntil(async () => (await queue.counts()).failed === 1, "it has failed");
  await worker.close();
  const isKnown = async (): Promise<boolean> => (await service.overview()).queues.length === 1;
  await waitUntil(isKnown, "it is reported");
  const { url } = await servers.open(sluices.open(), { insecureLocal: true });
  return { url, service, queue, id };
}

describe("the board of queues", () => {
  it("hides the data of jobs until it is asked for, and shows hostile data as text", async () => {
    const { url, id } = await openQueueBoard();
    const { page, errors } = await boards.open(`${url}/#/queues`);

    await page.getByRole("link", { name: "charges" }).click();
    await page.getByText(`declined ${HOSTILE}`).first().waitFor();
    expect(await page.locator("pre").count()).toBe(0);
    await page.getByRole("button", { name: `Show data of ${id}` }).click();

    const shown = await page.locator("pre").textContent();
    expect(JSON.parse(shown!)).toEqual({ card: HOSTILE });
    expect(await page.evaluate("window.hurt")).toBeUndefined();
    expect(await page.locator("main img, main script").count()).toBe(0);
    expect(errors).toEqual([]);
  });

  it("offers no data to a token that may only look", async () => {
    const { service } = await openQueueBoard();
    const { url } = await servers.open(service);
    const { page } = await boards.open(`${url}/#/queue/charges`);

    await page.getByLabel("Token").fill(VIEW);
    await page.getByRole("button", { name: "Sign in" }).click();

    await page.getByText(`declined ${HOSTILE}`).first().waitFor();
    expect(await page.getByRole("button", { name: /^Show data/ }).count()).toBe(0);
  });

  it("puts a dead letter back after it said what that may do", async () => {
    const { url, queue, id } = await openQueueBoard();
    const { page } = await boards.open(`${url}/#/queue/charges`);

    await page.getByRole("button", { name: `Replay ${id}` }).click();
    await page.getByText("Anything done before may happen twice.").waitFor();
    expect((await queue.counts()).failed).toBe(1);
    await page.getByRole("dialog").getByRole("button", { name: "Replay" }).click();

    await page.getByText("1 job put back into the queue.").waitFor();
    expect(await queue.counts()).toMatchObject({ failed: 0, waiting: 1 });
    await page.getByText("No worker is running.").waitFor();
  });

  it("replays and purges the dead letters of one error, after it said what that does", async () => {
    const { url, service, queue } = await openQueueBoard();
    await queue.enqueueMany([{ card: "1" }, { card: "2" }], { attempts: 1, key: "acme" });
    const worker = service.worker(queue, async ({ data }) => {
      throw new Error(`the limit of card ${data.card} is exceeded`);
    });
    await waitUntil(async () => (await queue.counts()).failed === 3, "all have failed");
    await worker.close();
    const { groups } = await queue.failedGroups();
    const [limits, declined] = groups.map(({ group }) => group);
    const { page, errors } = await boards.open(`${url}/#/queue/charges`);
    const rows = page.locator('[aria-label="Dead letters by error"] tbody tr');

    await rows.first().waitFor();
    expect(await rows.first().textContent()).toContain("is exceeded2acme");
    await page.getByRole("button", { name: `Purge group ${limits}` }).click();
    await page.getByText("2 jobs will be removed for good").waitFor();
    expect((await queue.counts()).failed).toBe(3);
    await page.getByRole("dialog").getByRole("button", { name: "Purge" }).click();
    await page.getByText("2 jobs removed for good.").waitFor();
    await page.getByRole("button", { name: `Replay group ${declined}` }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Replay" }).click();

    await page.getByText("1 job put back into the queue.").waitFor();
    expect(await queue.counts()).toMatchObject({ failed: 0, waiting: 1 });
    expect(await page.evaluate("window.hurt")).toBeUndefined();
    expect(errors).toEqual([]);
  });

  it("groups dead letters only if there are some, and shows the queue if that fails", async () => {
    const { url, queue } = await openQueueBoard();
    const { page } = await boards.open(`${url}/#/queue/charges`);
    let asked = 0;
    await page.route("**/failed-groups*", async (route) => {
      asked += 1;
      await route.abort();
    });

    await page.reload();
    await page.getByText(`declined ${HOSTILE}`).waitFor();
    await waitUntil(() => asked > 0, "the groups were asked for");
    expect(await page.locator('[aria-label="Dead letters by error"]').count()).toBe(0);
    await queue.purge({});
    asked = 0;
    await page.reload();

    await page.getByText("No dead letters.").waitFor();
    expect(asked).toBe(0);
  });

  it("pauses a queue, and lets that be undone", async () => {
    const { url, queue } = await openQueueBoard();
    const { page } = await boards.open(`${url}/#/queue/charges`);

    await page.getByRole("button", { name: "Pause" }).click();
    await page.getByRole("button", { name: "Pause the queue" }).click();
    await page.getByText("charges is paused.").waitFor();
    expect(await queue.paused()).toHaveLength(1);
    await page.locator("#toast").getByRole("button", { name: "Undo" }).click();

    await page.getByText("The change was undone.").waitFor();
    expect(await queue.paused()).toEqual([]);
  });

  it("shows who changed queues and endpoints, and takes back what can be taken back", async () => {
    const { url, queue } = await openQueueBoard();
    await queue.pause({ key: HOSTILE, by: "ann", reason: HOSTILE, forMs: 3_600_000 });
    await queue.drain({ by: "bob" });
    const { page, errors } = await boards.open(`${url}/#/changes`);
    const row = page.locator("tbody tr", { hasText: "ann" });

    await row.waitFor();
    expect(await page.getByRole("button", { name: /^Undo/ }).count()).toBe(1);
    expect(await page.locator("tbody tr", { hasText: "bob" }).textContent()).toContain("0 jobs");
    await page.getByRole("button", { name: "Undo pause of charges" }).click();

    await row.getByText("undone").waitFor();
    expect(await queue.paused()).toEqual([]);
    expect(await page.evaluate("window.hurt")).toBeUndefined();
    expect(errors).toEqual([]);
  });

  it("shows the flow of a job as a tree, with the jobs that block it", async () => {
    const { url, queue } = await openQueueBoard();
    const items = Array.from({ length: 30 }, (_, at) => ({ card: String(at) }));
    const { final, jobs } = await queue.enqueueGroup(items, {
      then: { data: { card: HOSTILE }, options: { key: HOSTILE } },
    });
    const child = await queue.enqueue({ card: "child" }, { after: [final], id: "<b>child</b>" });
    const { page, errors } = await boards.open(`${url}/#/queue/charges`);
    const tree = page.locator(".tree").first();

    await page.getByRole("button", { name: "Scheduled" }).click();
    await page.getByRole("link", { name: "<b>child</b>" }).click();
    await page.getByText("The job waits: 1 parent has not ended.").waitFor();
    await tree.getByRole("link", { name: final.id, exact: true }).click();
    await page.getByText("The job waits: 30 parents have not ended.").waitFor();

    expect(await tree.getByText("blocks").count()).toBe(24);
    expect(await tree.locator("li li").last().textContent()).toBe("and 6 more");
    expect(await page.locator(".tree").last().textContent()).toBe(`charges / ${child.id}delayed`);
    await tree.getByRole("link", { name: jobs[0]!.id, exact: true }).click();
    await page.getByText("The job waits: no worker is alive.").waitFor();
    expect(await tree.textContent()).toContain("blocks");
    expect(await page.evaluate("window.hurt")).toBeUndefined();
    expect(errors).toEqual([]);
  });

  it("says that an open group blocks a job, which has no due time yet", async () => {
    const { url, queue } = await openQueueBoard();
    const { final } = await queue.enqueueGroup([], { then: { data: { card: "1" } }, open: true });
    const child = await queue.enqueue({ card: "2" }, { after: [final] });
    const { page } = await boards.open(`${url}/#/job/charges/${child.id}`);
    const step = page.locator(".tree li li");

    await step.waitFor();

    expect(await step.textContent()).toBe(`charges / ${final.id}delayedblocksits group is open`);
    expect(await page.locator("dt").allTextContents()).not.toContain("Due");
  });

  it("says how many workers are needed, also in a narrow window", async () => {
    const { url, queue } = await openQueueBoard();
    const { page } = await boards.open(`${url}/#/queues`, { width: 390 });
    await queue.enqueue({ card: "1" });
    const workers = page.locator('td[data-label="Workers"]');

    await waitUntil(async () => /needed/.test(await workers.innerText()), "a worker is needed");

    expect(await workers.innerText()).toMatch(/^0 of \d+ needed$/);
  });

  it("cancels a waiting job, and replays a dead letter, after it said what that does", async () => {
    const { url, queue, id } = await openQueueBoard();
    const waiting = await queue.enqueue({ card: "1" });
    const { page } = await boards.open(`${url}/#/job/charges/${waiting.id}`);

    await page.getByRole("button", { name: "Cancel" }).click();
    await page.getByText("The job will be removed").waitFor();
    expect(await waiting.state()).toBe("waiting");
    await page.getByRole("button", { name: "Cancel the job" }).click();
    await page.getByText(`${waiting.id} was cancelled.`).waitFor();
    expect(await waiting.state()).toBeUndefined();
    await page.goto(`${url}/#/job/charges/${id}`);
    await page.getByRole("button", { name: "Replay" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Replay" }).click();

    await page.getByText("1 job put back into the queue.").waitFor();
    expect(await queue.counts()).toMatchObject({ failed: 0, waiting: 1 });
  });

  it("shows the keys of which most jobs wait, with their weights", async () => {
    const service = sluices.open();
    const bucket = service.bucket("api", { rate: "1/h" });
    const weights = { acme: 4 };
    const queue = service.queue<number>("mails", { bucket, weights });
    await queue.enqueueMany([1, 2, 3], { key: "acme" });
    await queue.enqueue(1, { key: HOSTILE });
    const isKnown = async (): Promise<boolean> => (await service.overview()).queues.length === 1;
    await waitUntil(isKnown, "it is reported");
    const { url } = await servers.open(sluices.open(), { insecureLocal: true });
    const { page, errors } = await boards.open(`${url}/#/queue/mails`);
    const rows = page.locator("section", { hasText: "Queued jobs by key" }).locator("tbody tr");

    await rows.first().waitFor();

    const cells = (at: number): Promise<string[]> => rows.nth(at).locator("td").allTextContents();
    expect(await cells(0)).toEqual(["acme", "", "3", "4", "–"]);
    expect(await cells(1)).toEqual([HOSTILE, "", "1", "1", "–"]);
    await page.goto(`${url}/#/bucket/api`);
    await page.getByRole("heading", { name: "Queued jobs by key" }).waitFor();
    await page.locator("td", { hasText: HOSTILE }).waitFor();
    expect(await page.evaluate("window.hurt")).toBeUndefined();
    expect(errors).toEqual([]);
  });

  it("says who set what holds of a queue, and takes that back", async () => {
    const { url, queue } = await openQueueBoard();
    const forMs = 3_600_000;
    await queue.set({ defaults: { attempts: 4 }, by: HOSTILE, reason: "429s", forMs });
    const { page, errors } = await boards.open(`${url}/#/queue/charges`);
    const row = page
      .getByRole("region", { name: "Settings" })
      .locator("tr", { hasText: "attempts" });

    await row.getByText("override").waitFor();
    expect(await row.locator("td").nth(1).textContent()).toBe("4");
    expect(await row.textContent()).toContain(`${HOSTILE}, ends in `);
    const change = page.getByRole("region", { name: "Changes" }).locator("tr", { hasText: "429s" });
    expect(await change.textContent()).toContain("defaults.attempts – → 4 for 1 h");
    await page.getByRole("button", { name: "Undo set of charges" }).click();

    await row.waitFor({ state: "detached" });
    // This process may know it for half a second more.
    await waitUntil(
      async () => (await queue.status()).settings.every(({ setBy }) => setBy !== "override"),
      "it is taken back",
    );
    expect(await page.evaluate("window.hurt")).toBeUndefined();
    expect(errors).toEqual([]);
  });

  it("refuses a pause of a queue that another operator has paused since", async () => {
    const { url, queue } = await openQueueBoard();
    const { page } = await boards.open(`${url}/#/queue/charges`);

    await page.getByRole("button", { name: "Pause" }).click();
    await queue.pause({ forMs: 3_600_000, by: "bob" });
    await page.getByRole("button", { name: "Pause the queue" }).click();

    await page.getByText("Another change came first.").waitFor();
    expect((await queue.paused())[0]!.forMs).toBeLessThanOrEqual(3_600_000);
  });

  it("shows a dead letter on two lines, 400 px wide", async () => {
    const { url } = await openQueueBoard();
    const { page } = await boards.open(`${url}/#/queue/charges`, { width: 400 });
    const row = page.getByRole("region", { name: "Dead letters" }).locator("tbody tr").last();
    await row.waitFor();

    expect(await page.evaluate(LINES)).toBe(2);
    expect(await row.getByRole("button", { name: /^Replay/ }).isVisible()).toBe(true);
    await row.getByRole("button", { name: /^Show data/ }).click();
    await page.locator("pre").waitFor();
    expect(await page.evaluate("document.documentElement.scrollWidth - innerWidth")).toBe(0);
  });

  it.each([1280, 400])("can be read and used by everybody: %i px wide", async (width) => {
    const { url, queue } = await openQueueBoard();
    await queue.pause({ key: ["acme", "orders"], forMs: 3_600_000, by: "ann", reason: "429s" });
    await queue.purge({ reason: "Expired" }, { by: "bob" });
    await queue.set({ maxBacklog: 500, by: "ann", reason: "429s", forMs: 3_600_000 });
    await queue.enqueue({ card: "1" }, { cron: "0 3 * * *", timeZone: "UTC", dedupeId: "nightly" });
    const parents = await queue.enqueueMany([{ card: "2" }, { card: "3" }], { key: "acme" });
    const child = await queue.enqueue({ card: "4" }, { after: parents });
    await queue.enqueue({ card: "5" }, { after: [child] });
    const { page } = await boards.open(url, { width });

    const flaws = await flawsOf(page, url, [
      ["#/queues", "table.cards"],
      ["#/queue/charges", "text=nightly"],
      [`#/job/charges/${child.id}`, ".tree"],
      ["#/changes", "text=paused 1 h"],
    ]);

    expect(flaws).toEqual([]);
  });
});
