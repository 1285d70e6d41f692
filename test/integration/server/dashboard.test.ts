import { describe, expect, it } from "vitest";
import { budget, concurrency, leakyBucket } from "sluice";
import { partsOf } from "../../../src/sluice/parts.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { ACT, ask, openServers, VIEW } from "../../support/server/open-server.ts";
import { flawsOf, openBoards, seriousOf, takePicture } from "../../support/server/boards.ts";
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
  await waitUntil(isKnown, "all buckets are reported");
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
      .locator(".tile", { hasText: "Waiting calls" })
      .locator(".value", { hasText: /^3$/ })
      .waitFor();
    await bucket.resume();
    await waiting;
    await row.getByText("paused").waitFor({ state: "detached" });
    expect(errors).toEqual([]);
    expect(requests.filter((asked) => !asked.startsWith(`${url}/`))).toEqual([]);
  });

  it("shows the effect of a new rate, changes the rate in all processes, and undoes it", async () => {
    const { url, bucket } = await openBoard();
    const { page, errors } = await boards.open(`${url}/#/bucket/stripe`);

    await page.getByRole("button", { name: "Change rate" }).click();
    await page.getByRole("textbox", { name: /^Rate/ }).fill("20/s");
    await page.getByLabel("Reason").fill("429s");
    await page.locator(".preview", { hasText: "From 100 to 20 calls per second." }).waitFor();
    expect((await bucket.status()).source).toBe("code");
    await page.getByRole("dialog").getByRole("button", { name: "Change rate" }).click();

    await page.getByText("stripe now runs at 20/s.").waitFor();
    expect(await bucket.status()).toMatchObject({ capPerSecond: 20, setBy: { reason: "429s" } });
    await page.locator("#toast").getByRole("button", { name: "Undo" }).click();
    await page.getByText("The change was undone.").waitFor();
    expect(await bucket.status()).toMatchObject({ capPerSecond: 100, source: "code" });
    expect(errors).toEqual([]);
  });

  it.each([1280, 390])(
    "tries a new rate on the last 24 hours, and forgets it for another rate: %i px wide",
    async (width) => {
      const { url, bucket } = await openBoard();
      await Promise.all(Array.from({ length: 199 }, () => bucket.draw()));
      const isStored = async (): Promise<boolean> => {
        const { points } = await bucket.history();
        return points.reduce((sum, { started }) => sum + started, 0) === 200;
      };
      await waitUntil(isStored, "all calls are in the history");
      const { page, errors } = await boards.open(`${url}/#/bucket/stripe`, { width });
      await page.getByRole("button", { name: "Change rate" }).click();
      const dialog = page.getByRole("dialog");
      const rate = dialog.getByRole("textbox", { name: /^Rate/ });
      await rate.fill("1/s");

      await dialog.getByRole("button", { name: "Try on the last 24 h" }).click();

      const waiting = dialog.locator("tr", { hasText: "Still wait at the end" }).locator("td");
      await waiting.nth(2).waitFor();
      const [, now, after] = await waiting.allTextContents();
      expect(now).toBe("0");
      expect(Number(after)).toBeGreaterThan(100);
      expect(await dialog.textContent()).toContain("the API rejected 0 calls");
      expect(await seriousOf(page)).toEqual([]);
      expect(await page.evaluate("document.documentElement.scrollWidth - innerWidth")).toBe(0);
      const tooWide = `[...document.querySelectorAll("dialog, dialog .scroll")].filter((each) => each.scrollWidth > each.clientWidth).length`;
      expect(await page.evaluate(tooWide)).toBe(0);
      await takePicture(page, `trial-${width}`);
      await rate.fill("2/s");
      await waiting.first().waitFor({ state: "detached" });
      expect((await bucket.status()).source).toBe("code");
      expect(errors).toEqual([]);
    },
  );

  it("opens the dialog with the rate in force, for one hour", async () => {
    const { url, bucket } = await openBoard();
    const { page } = await boards.open(`${url}/#/bucket/stripe`);

    await page.getByRole("button", { name: "Change rate" }).click();
    const dialog = page.getByRole("dialog");
    const rate = dialog.getByRole("textbox", { name: /^Rate/ });
    await dialog.getByText("100 calls per second, as now.").waitFor();
    expect(await rate.inputValue()).toBe("100/s");
    await page.keyboard.type("20/s");
    await dialog.getByRole("button", { name: "Change rate" }).click();

    await page.getByText("stripe now runs at 20/s.").waitFor();
    const { endsInMs } = (await bucket.status()).setBy!;
    expect(endsInMs).toBeGreaterThan(0);
    expect(endsInMs).toBeLessThanOrEqual(3_600_000);
  });

  it("fills the dialog with the lowest rate of a bucket that has several limits", async () => {
    const service = sluices.open();
    const limits = [leakyBucket("100/s"), leakyBucket("600/min"), concurrency(3)];
    const bucket = service.bucket("stripe", { limits, perKey: { rate: "1/s" } });
    await bucket.draw();
    await waitUntil(async () => (await service.overview()).buckets.length === 1, "it is reported");
    const { url } = await servers.open(sluices.open(), { insecureLocal: true });
    const { page } = await boards.open(`${url}/#/bucket/stripe`);

    await page.getByRole("button", { name: "Change rate" }).click();

    expect(await page.getByRole("textbox", { name: /^Rate/ }).inputValue()).toBe("600/min");
    const effect = page.locator(".preview", { hasText: "calls per second" });
    expect(await effect.textContent()).toContain(
      "The new rate replaces all of these: 100/s, 600/min, 3 at once. ",
    );
  });

  it("shows what is left of a budget, and grants more", async () => {
    const service = sluices.open();
    const limits = [budget({ unit: "usd", amount: 10, per: "year" })];
    const bucket = service.bucket("llm", { rate: "100/s", limits });
    await bucket.draw({ cost: { usd: 10 } });
    await waitUntil(async () => (await service.overview()).buckets.length === 1, "it is reported");
    const { url } = await servers.open(sluices.open(), { insecureLocal: true });
    const { page, errors } = await boards.open(`${url}/#/bucket/llm`);
    const row = page.locator("tr", { hasText: "spent" }).filter({ hasText: "10/year usd" });
    await row.waitFor();

    await page.getByRole("button", { name: "Grant" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("textbox", { name: /^Amount/ }).fill("usd=2.5");
    await dialog.getByLabel("Reason").fill("demo day");
    await dialog.getByRole("button", { name: "Grant" }).click();

    await page.getByText("Granted usd=2.5 to llm.").waitFor();
    expect(await bucket.budgets()).toMatchObject([{ amount: 12.5, granted: 2.5 }]);
    await page.getByText("usd:year +2.5").waitFor();
    await page.locator("#toast").getByRole("button", { name: "Undo" }).click();
    await page.getByText("The change was undone.").waitFor();
    expect(await bucket.budgets()).toMatchObject([{ amount: 10, granted: 0 }]);
    expect(errors).toEqual([]);
  });

  it.each([1280, 390])(
    "shows the keys that have spent most, and each level of a key: %i px wide",
    async (width) => {
      const service = sluices.open();
      const usd = (amount: number) => budget({ unit: "usd", amount, per: "month" });
      const bucket = service.bucket("llm", {
        limits: [usd(5_000)],
        perKey: [{ limits: [usd(100)] }, { limits: [usd(20)] }],
      });
      const users = Array.from({ length: 25 }, (_, user) =>
        bucket.draw({
          key: ["search", `user-${user}`],
          cost: { usd: user === 7 ? 20 : 0.1 * user },
        }),
      );
      await Promise.all(users);
      await waitUntil(
        async () => (await service.overview()).buckets.length === 1,
        "it is reported",
      );
      const { url } = await servers.open(sluices.open(), { insecureLocal: true });
      const { page, errors } = await boards.open(url, { width });

      const flaws = await flawsOf(page, url, [
        ["#/bucket/llm", "section[aria-label='Budgets of keys'] tbody tr"],
        ["#/key/llm/search/user-7", "section[aria-label='Budgets'] tbody tr"],
      ]);

      expect(flaws).toEqual([]);
      const levels = page.locator("section[aria-label='Budgets'] tbody tr");
      expect(await levels.count()).toBe(3);
      await page.goto(`${url}/#/bucket/llm`);
      const rows = page.locator("section[aria-label='Budgets of keys'] tbody tr");
      await rows.first().waitFor();
      expect(await rows.count()).toBe(10);
      expect(await rows.first().textContent()).toMatch(/^search \/ user-7.*20.*20.*spent$/);
      await rows.first().getByRole("link").click();
      await page.getByRole("heading", { name: "search / user-7" }).waitFor();
      expect(errors).toEqual([]);
    },
  );

  it("grants more to a key on the key's own page", async () => {
    const service = sluices.open();
    const limits = [budget({ unit: "usd", amount: 10, per: "year" })];
    const bucket = service.bucket("llm", { perKey: { limits } });
    await bucket.draw({ key: "acme", cost: { usd: 10 } });
    await waitUntil(async () => (await service.overview()).buckets.length === 1, "it is reported");
    const { url } = await servers.open(sluices.open(), { insecureLocal: true });
    const { page, errors } = await boards.open(`${url}/#/key/llm/acme`);

    await page.getByRole("button", { name: "Grant" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("textbox", { name: /^Amount/ }).fill("usd=2.5");
    await dialog.getByLabel("Reason").fill("demo day");
    await dialog.getByRole("button", { name: "Grant" }).click();

    await page.getByText("Granted usd=2.5 to acme.").waitFor();
    expect(await bucket.budgets({ key: "acme" })).toMatchObject([{ amount: 12.5, granted: 2.5 }]);
    expect(errors).toEqual([]);
  });

  it("shows how many calls a limit that adapts lets run at once", async () => {
    const service = sluices.open();
    const limits = [concurrency("auto", { initial: 4, max: 9, shadow: true })];
    await service.bucket("llm", { limits }).run(() => {});
    await waitUntil(async () => (await service.overview()).buckets.length === 1, "it is reported");
    const { url } = await servers.open(sluices.open(), { insecureLocal: true });

    const { page, errors } = await boards.open(`${url}/#/bucket/llm`);

    const now = "is in shadow: 9 calls may run at once, and it would allow 4.";
    await page.getByText(`The limit 1 to 9 at once ${now} It calibrates`).waitFor();
    expect(errors).toEqual([]);
  });

  it("shows the queued jobs of all queues, and those of each bucket", async () => {
    const { url, service, bucket } = await openBoard(["stripe", "openai"]);
    await bucket.pause({ by: "bob" });
    const [charges, mails] = ["charges", "mails"].map((name) => service.queue(name, { bucket }));
    await charges!.enqueueMany([1, 2]);
    await mails!.enqueue(3);
    const { page, errors } = await boards.open(url);
    const cell = (name: string) =>
      page.locator("tr", { hasText: name }).locator('td[data-label="Queued jobs"]');

    await cell("stripe").filter({ hasText: /^3$/ }).waitFor();

    const tile = page.locator(".tile", { hasText: "Queued jobs" }).locator(".value");
    expect(await tile.textContent()).toBe("3");
    expect(await cell("openai").textContent()).toBe("–");
    expect(errors).toEqual([]);
  });

  it("shows a bucket at its cap in the colour of health, and nothing as an alarm", async () => {
    const { url, service } = await openBoard();
    const { insight } = partsOf("test", service);
    const state = { waiting: [], oldestMs: 0, startedIn10s: 1_000, limitedBy: "100/s" };
    const waited = { callers: [0, 0, 0, 0], forMs: 0 };
    const stripe = { bucket: "stripe", state, started: 0, refused: 0, declared: undefined, waited };
    const { page } = await boards.open(url);
    let shown: unknown;

    await waitUntil(async () => {
      await insight.report({
        replica: "elsewhere",
        about: { host: "h", pid: 1, version: "1", startedAtMs: Date.now() },
        isLast: false,
        buckets: [stripe],
        queues: [],
        workers: undefined,
      });
      shown = await page.evaluate(`({
        colours: [...document.querySelectorAll(".at-cap")].map((bar) => getComputedStyle(bar).backgroundColor),
        alarms: document.querySelectorAll(".badge.warn, .badge.danger, .tile.warn, .alert").length,
      })`);
      return (shown as { colours: unknown[] }).colours.length === 2;
    }, "the bars of the bucket and of all buckets are full");

    const green = "rgb(21, 106, 55)";
    expect(shown).toEqual({ colours: [green, green], alarms: 0 });
  });

  it("starts its charts with the last ten minutes", async () => {
    const { url } = await openBoard();
    const { page, requests } = await boards.open(`${url}/#/bucket/stripe`);
    const openedAtMs = Date.now();
    await page.locator("#chart canvas").waitFor();

    const pressed = page.getByRole("group", { name: "Time range" }).locator("[aria-pressed=true]");
    expect(await pressed.textContent()).toBe("10 min");
    const asked = requests.find((request) => request.includes("/history?"))!;
    const sinceMs = Number(new URL(asked).searchParams.get("sinceMs"));
    expect(openedAtMs - sinceMs).toBeLessThan(3_600_000 / 2);
  });

  it("shows when the calls of a paused bucket start: never at another rate, and soon after a resume", async () => {
    const { url, bucket } = await openBoard();
    await bucket.pause({ by: "bob" });
    const waiting = Promise.all(Array.from({ length: 101 }, () => bucket.draw()));
    const isReported = async (): Promise<boolean> => (await bucket.status()).waiting.total === 101;
    await waitUntil(isReported, "all calls are reported");
    const { page } = await boards.open(`${url}/#/bucket/stripe`);
    const preview = page.locator(".preview");

    await page.getByRole("button", { name: "Change rate" }).click();
    await page.getByRole("textbox", { name: /^Rate/ }).fill("20/s");
    await preview
      .getByText("The 101 waiting calls will not start until you resume the bucket.")
      .waitFor();
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: "Resume" }).click();

    await preview
      .getByText("The 101 waiting calls will start within 1 s instead of never")
      .waitFor();
    expect((await bucket.status()).pausedForMs).toBe(Infinity);
    await bucket.resume();
    await waiting;
  });

  it("refuses a new rate if someone else has changed the bucket since the dialog opened", async () => {
    const { url, bucket } = await openBoard();
    const { page } = await boards.open(`${url}/#/bucket/stripe`);
    await page.getByRole("button", { name: "Change rate" }).click();
    await page.getByRole("textbox", { name: /^Rate/ }).fill("20/s");

    await bucket.configure({ rate: "50/s" }, { by: "bob" });
    await page.getByRole("dialog").getByRole("button", { name: "Change rate" }).click();

    await page.getByText("Another change came first.").waitFor();
    expect(await bucket.status()).toMatchObject({ capPerSecond: 50 });
  });

  it("lists a bucket that only rules name, with no calls yet", async () => {
    const rules = files.write("sluice.yaml", "buckets: { planned: { rate: 50/s } }");
    const { url } = await servers.open(sluices.open({ rules }), { insecureLocal: true });
    const { page } = await boards.open(url);

    await page.locator("tr", { hasText: "planned" }).getByText("no calls yet").waitFor();
    expect(await page.locator("tr", { hasText: "planned" }).count()).toBe(1);
  });

  it("counts the overrides of operators, and not the limits of a rules file", async () => {
    const rules = files.write(
      "sluice.yaml",
      "buckets: { one: { rate: 50/s }, two: { rate: 9/s } }",
    );
    const sluice = sluices.open({ rules });
    const { url } = await servers.open(sluice, { insecureLocal: true });
    const { page } = await boards.open(url);
    await page.locator("tr", { hasText: "two" }).waitFor();
    const tile = page.locator(".tile", { hasText: "Overrides" }).locator(".value");

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
    await page.getByText("The server does not accept this token.").waitFor();
    await page.getByLabel("Token").fill(VIEW);
    await page.getByRole("button", { name: "Sign in" }).click();

    await page.getByText("Your token cannot make changes.").waitFor();
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
    await waitUntil(isReported, "the refusal is reported");
    const { page, errors } = await boards.open(`${url}/#/bucket/stripe`);

    const legend = page.locator(".legend");

    await legend.getByText("refused by the downstream: 1").waitFor();
    await legend.getByText("changes: 1").waitFor();
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

    await page.getByText("The server is unreachable. The page shows the state of").waitFor();

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

  it("weighs less than 168 kB in all", async () => {
    const { url } = await openBoard();
    const { page, requests } = await boards.open(`${url}/#/bucket/stripe`);
    await page.locator("#chart canvas").waitFor();
    const files = new Set(requests.filter((asked) => !asked.includes("/api/")));

    const answers = await Promise.all([...files].map(async (file) => ask(file.split("#")[0]!)));

    const total = answers.reduce((sum, { text }) => sum + Buffer.byteLength(text), 0);
    expect(files.size).toBeGreaterThan(10);
    expect(total).toBeLessThan(168_000);
  });

  it.each([1280, 400])("can be read and used by everybody: %i px wide", async (width) => {
    const { url, bucket } = await openBoard(["stripe", "a-bucket-with-a-very-long-name".repeat(3)]);
    await bucket.configure({ rate: "50/s" }, { by: "ann", reason: "a trial", forMs: 3_600_000 });
    const { page } = await boards.open(url, { width });

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
