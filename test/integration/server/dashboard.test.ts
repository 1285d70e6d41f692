import { describe, expect, it } from "vitest";
import { partsOf } from "../../../src/sluice/parts.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { ACT, ask, openServers, VIEW } from "../../support/server/open-server.ts";
import { flawsOf, openBoards, seriousOf } from "../../support/server/boards.ts";
import { fakeApis } from "../../support/servers/fake-api.ts";
import { rulesFiles } from "../../support/rules/rules-files.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const HOSTILE = `<img src=x onerror="window.hurt=1"> & <script>window.hurt=1</script>`;

const sluices = realSluices();
const servers = openServers();
const boards = openBoards();
const apis = fakeApis();
const files = rulesFiles();

/** A service that calls through a bucket, and a server beside it. */
async function openBoard(names: readonly string[] = ["stripe"]) {
  const service = sluices.open();
  const buckets = names.map((name) => service.bucket(name, { rate: "100/s" }));
  await Promise.all(buckets.map((bucket) => bucket.draw()));
  const isKnown = async (): Promise<boolean> =>
    (await service.overview()).buckets.length === names.length;
  await waitUntil(isKnown, "they are told of");
  const { url } = await servers.open(sluices.open(), { insecureLocal: true });
  return { url, service, bucket: buckets[0]! };
}

describe("the board", () => {
  it("shows numbers that move by themselves, and asks no other host", async () => {
    const { url, bucket } = await openBoard();
    const { page, requests, errors } = await boards.open(url);
    const row = page.locator("tr", { hasText: "stripe" });
    await row.waitFor();

    await bucket.pause({ by: "bob" });
    const waiting = Promise.all([bucket.draw(), bucket.draw(), bucket.draw()]);

    await row.getByText("paused").waitFor();
    await page
      .locator(".tile", { hasText: "Waiting" })
      .locator(".value", { hasText: /^3$/ })
      .waitFor();
    await bucket.resume();
    await waiting;
    await row.getByText("paused").waitFor({ state: "detached" });
    expect(errors).toEqual([]);
    expect(requests.filter((asked) => !asked.startsWith(`${url}/`))).toEqual([]);
  });

  it("changes a rate after it said what that does, in all processes, and takes it back", async () => {
    const { url, bucket } = await openBoard();
    const { page, errors } = await boards.open(`${url}/#/bucket/stripe`);

    await page.getByRole("button", { name: "Change rate" }).click();
    await page.getByRole("textbox", { name: /^Rate/ }).fill("20/s");
    await page.getByLabel("Why").fill("429s");
    await page.locator(".preview", { hasText: "From 100 to 20 calls a second." }).waitFor();
    expect((await bucket.status()).source).toBe("code");
    await page.getByRole("button", { name: "Put it in force" }).click();

    await page.getByText("stripe is at 20/s now.").waitFor();
    expect(await bucket.status()).toMatchObject({ capPerSecond: 20, setBy: { reason: "429s" } });
    await page.locator("#toast").getByRole("button", { name: "Undo" }).click();
    await page.getByText("The change was taken back.").waitFor();
    expect(await bucket.status()).toMatchObject({ capPerSecond: 100, source: "code" });
    expect(errors).toEqual([]);
  });

  it("shows for a paused bucket that no rate starts the waiting calls, and their start after a resume", async () => {
    const { url, bucket } = await openBoard();
    await bucket.pause({ by: "bob" });
    const waiting = Promise.all(Array.from({ length: 101 }, () => bucket.draw()));
    const areTold = async (): Promise<boolean> => (await bucket.status()).waiting.total === 101;
    await waitUntil(areTold, "they are told of");
    const { page } = await boards.open(`${url}/#/bucket/stripe`);
    const preview = page.locator(".preview");

    await page.getByRole("button", { name: "Change rate" }).click();
    await page.getByRole("textbox", { name: /^Rate/ }).fill("20/s");
    await preview.getByText("The 101 that wait do not start before it is resumed.").waitFor();
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: "Resume" }).click();

    await preview.getByText("The 101 that wait have started within 1 s instead of never").waitFor();
    expect((await bucket.status()).pausedForMs).toBe(Infinity);
    await bucket.resume();
    await waiting;
  });

  it("does not overwrite what somebody else changed while the dialog was open", async () => {
    const { url, bucket } = await openBoard();
    const { page } = await boards.open(`${url}/#/bucket/stripe`);
    await page.getByRole("button", { name: "Change rate" }).click();
    await page.getByRole("textbox", { name: /^Rate/ }).fill("20/s");

    await bucket.configure({ rate: "50/s" }, { by: "bob" });
    await page.getByRole("button", { name: "Put it in force" }).click();

    await page.getByText("It has changed since you opened this dialog.").waitFor();
    expect(await bucket.status()).toMatchObject({ capPerSecond: 50 });
  });

  it("lists a bucket that only rules name, with no calls yet", async () => {
    const rules = files.write("sluice.yaml", "buckets: { planned: { rate: 50/s } }");
    const { url } = await servers.open(sluices.open({ rules }), { insecureLocal: true });
    const { page } = await boards.open(url);

    await page.locator("tr", { hasText: "planned" }).getByText("no calls yet").waitFor();
    expect(await page.locator("tr", { hasText: "planned" }).count()).toBe(1);
  });

  it("counts what a person set as set by hand, and not what a rules file sets", async () => {
    const rules = files.write(
      "sluice.yaml",
      "buckets: { one: { rate: 50/s }, two: { rate: 9/s } }",
    );
    const sluice = sluices.open({ rules });
    const { url } = await servers.open(sluice, { insecureLocal: true });
    const { page } = await boards.open(url);
    await page.locator("tr", { hasText: "two" }).waitFor();
    const tile = page.locator(".tile", { hasText: "Set by hand" }).locator(".value");

    expect(await tile.textContent()).toBe("0");

    await sluice.bucket("one", { rate: "50/s" }).configure({ rate: "5/s" }, { by: "bob" });
    await tile.filter({ hasText: /^1$/ }).waitFor();
  });

  it("shows hostile names and reasons as the text that they are", async () => {
    const { url, bucket } = await openBoard([HOSTILE]);
    await bucket.pause({ by: HOSTILE, reason: HOSTILE });
    const { page, errors } = await boards.open(url);

    await page.locator("table").getByRole("link", { name: HOSTILE }).click();
    await page.getByRole("heading", { name: HOSTILE }).waitFor();
    await page.locator("table.cards").getByText(HOSTILE).first().waitFor();

    expect(await page.evaluate("window.hurt")).toBeUndefined();
    expect(await page.locator("main img, main script").count()).toBe(0);
    expect(errors).toEqual([]);
  });

  it("lets no page that it forwards run a script on its origin, which could act", async () => {
    const hostile = `<body>harmless<script>
      document.body.textContent = "hurt";
      fetch("/api/v1/buckets/stripe/pause", { method: "POST", body: "{}", headers: { "content-type": "application/json" } });
    </script></body>`;
    const upstream = await apis.start(() => ({
      headers: { "content-type": "text/html" },
      body: hostile,
    }));
    const sluice = sluices.open();
    const bucket = sluice.bucket("stripe", { rate: "1000/s" });
    const forward = { up: { to: upstream.url, bucket: "stripe" } };
    const { url } = await servers.open(sluice, { insecureLocal: true, forward });

    const { page, requests } = await boards.open(`${url}/up/page`);

    expect(await page.locator("body").textContent()).toContain("harmless");
    expect(await page.locator("body").textContent()).not.toMatch(/^hurt/);
    expect(requests.filter((asked) => asked.includes("/api/"))).toEqual([]);
    expect((await bucket.peek()).pausedForMs).toBe(0);
  });

  it("asks for a token where one is needed, and lets a viewer change nothing", async () => {
    const { service } = await openBoard();
    const { url } = await servers.open(service);
    const { page } = await boards.open(`${url}/#/bucket/stripe`);

    await page.getByLabel("Token").fill("a-wrong-token");
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByText("The server knows no such token.").waitFor();
    await page.getByLabel("Token").fill(VIEW);
    await page.getByRole("button", { name: "Sign in" }).click();

    await page.getByText("Your token may only look.").waitFor();
    expect(await page.getByRole("button", { name: "Change rate" }).count()).toBe(0);
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByLabel("Token").fill(ACT);
    await page.getByLabel("Token").press("Enter");
    await page.getByRole("button", { name: "Change rate" }).waitFor();
    const kept = await page.evaluate("document.cookie + JSON.stringify(localStorage)");
    expect(kept).not.toContain("token");
  });

  it("counts and marks beside the curve what was refused, changed and started", async () => {
    const { url, bucket } = await openBoard();
    await bucket.configure({ rate: "50/s" }, { by: "ann" });
    const refuse = async (): Promise<never> => {
      throw Object.assign(new Error("too many"), { status: 429, headers: { "retry-after": "1" } });
    };
    await bucket.run(refuse).catch(() => undefined);
    const isReported = async (): Promise<boolean> =>
      (await bucket.history()).points.some(({ refused }) => refused === 1);
    await waitUntil(isReported, "the refusal is told of");
    const { page, errors } = await boards.open(`${url}/#/bucket/stripe`);

    const legend = page.locator(".legend");

    await legend.getByText("refused by the downstream: 1").waitFor();
    await legend.getByText("changed by hand: 1").waitFor();
    await legend.getByText("processes started: 1").waitFor();
    expect(errors).toEqual([]);
  });

  it("keeps what it shows while the server does not answer, says of when that is, and goes on", async () => {
    const { url } = await openBoard();
    const { page } = await boards.open(url);
    const row = page.locator("tr", { hasText: "stripe" });
    await row.waitFor();
    await page.route("**/api/**", (route) => route.abort());
    await page.locator("#search").fill("str");

    await page.getByText("The server does not answer. What is shown is of").waitFor();

    expect(await row.count()).toBe(1);
    expect(await page.locator("#search:focus").inputValue()).toBe("str");
    expect(await seriousOf(page)).toEqual([]);
    await page.unroute("**/api/**");
    await page.locator("#lost:empty").waitFor({ state: "attached" });
    await row.waitFor();
  });

  it("asks for nothing while its tab is hidden", async () => {
    const { url } = await openBoard();
    const { page, requests } = await boards.open(url);
    await page.locator("table").waitFor();
    const hide = (hidden: boolean): Promise<unknown> =>
      page.evaluate(`Object.defineProperty(document, "hidden", { value: ${hidden}, configurable: true });
        document.dispatchEvent(new Event("visibilitychange"))`);
    await hide(true);
    // The answers that were under way.
    await page.waitForLoadState("networkidle");
    const before = requests.length;

    // In the time of the browser, which is then a minute later.
    await page.clock.install();
    await page.clock.runFor(60_000);

    expect(requests.length).toBe(before);
    await hide(false);
    await waitUntil(() => requests.length > before, "it asks again");
  });

  it("takes the chosen theme, also for its charts, and keeps it", async () => {
    const { url, service } = await openBoard();
    const { insight } = partsOf("test", service);
    const state = { waiting: [], oldestMs: 0, startedIn10s: 0, limitedBy: undefined };
    const told = { bucket: "stripe", state, started: 0, refused: 0, declared: undefined };
    await insight.report({
      replica: "elsewhere",
      about: { host: "h", pid: 1, version: "1", startedAtMs: Date.now() },
      isLast: false,
      buckets: [{ ...told, waited: { callers: [30, 0, 0, 0], forMs: 30_000 } }],
      queues: [],
      workers: undefined,
    });
    const { page } = await boards.open(`${url}/#/bucket/stripe`);
    await page.getByRole("button", { name: "10 min" }).click();
    const background = `getComputedStyle(document.body).backgroundColor`;
    const hasColour = (chart: string, colour: readonly number[]): Promise<unknown> =>
      page.evaluate(`(() => {
        const canvas = document.querySelector("${chart} canvas");
        const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        for (let at = 0; at < data.length; at += 4)
          if (${JSON.stringify(colour)}.every((part, index) => data[at + index] === part)) return true;
        return false;
      })()`);
    const show = (chart: string, colour: readonly number[]): Promise<void> =>
      waitUntil(async () => (await hasColour(chart, colour)) === true, `${chart} has the colour`);
    await page.locator("#chart canvas").waitFor();
    await page.locator("#waits canvas").waitFor();

    // The lines behind the curve have the colour of all lines; what waits, that of its priority.
    await show("#chart", [225, 229, 234, 255]);
    await show("#waits", [163, 25, 91, 255]);
    await page.getByRole("button", { name: "Dark" }).click();
    await show("#chart", [42, 48, 59, 255]);
    await show("#waits", [255, 143, 191, 255]);

    expect(await page.evaluate(background)).toBe("rgb(15, 18, 24)");
    await page.reload();
    await page.getByRole("button", { name: "Light" }).click();
    expect(await page.evaluate(background)).toBe("rgb(246, 247, 249)");
  });

  it("weighs less than 150 kB in all", async () => {
    const { url } = await openBoard();
    const { page, requests } = await boards.open(`${url}/#/bucket/stripe`);
    await page.locator("#chart canvas").waitFor();
    const files = new Set(requests.filter((asked) => !asked.includes("/api/")));

    const answers = await Promise.all([...files].map(async (file) => ask(file.split("#")[0]!)));

    const total = answers.reduce((sum, { text }) => sum + Buffer.byteLength(text), 0);
    expect(files.size).toBeGreaterThan(10);
    expect(total).toBeLessThan(150_000);
  });

  it.each([
    ["light", 1280],
    ["dark", 1280],
    ["light", 400],
    ["dark", 400],
  ] as const)("can be read and used by everybody: %s, %i px wide", async (theme, width) => {
    const { url, bucket } = await openBoard(["stripe", "a-bucket-with-a-very-long-name".repeat(3)]);
    await bucket.configure({ rate: "50/s" }, { by: "ann", reason: "a trial", forMs: 3_600_000 });
    const { page } = await boards.open(url, { theme, width });

    const flaws = await flawsOf(page, url, [
      ["#/", "table.cards"],
      ["#/bucket/stripe", "#chart canvas"],
      ["#/changes", "table.cards"],
      ["#/workers", "table.cards"],
    ]);

    expect(flaws).toEqual([]);
    await page.goto(`${url}/#/bucket/stripe`);
    await page.getByRole("button", { name: "Pause" }).press("Enter");
    await page.getByRole("dialog").waitFor();
    expect(await seriousOf(page)).toEqual([]);
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "detached" });
  });
});
