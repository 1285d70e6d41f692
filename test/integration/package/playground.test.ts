import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import process from "node:process";
import { build } from "esbuild";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openBoards, seriousOf } from "../../support/server/boards.ts";
import { installPacked, type Consumer } from "../../support/setup/packed-package.ts";

const ROOT = join(import.meta.dirname, "../../..");
const SOURCES = join(ROOT, "docs/.vitepress/theme/playground");

const boards = openBoards();
const server = createServer();
let url = "";
let consumer: Consumer;

/** Serves the playground on a page of its own, with the simulator of the packed package. */
beforeAll(async () => {
  consumer = await installPacked();
  const simulator = join(consumer.folder, "node_modules/sluice/dist/simulate.browser.js");
  const { outputFiles } = await build({
    stdin: {
      contents: `import { openPlayground } from "./page.ts"; openPlayground(document.querySelector(".playground"));`,
      resolveDir: SOURCES,
    },
    bundle: true,
    write: false,
    format: "esm",
    platform: "browser",
    alias: { "sluice/simulate": simulator },
  });
  const style = await readFile(join(SOURCES, "style.css"), "utf8");
  const page = `<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Playground</title>
    <meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">
    <style>body { margin: 16px; font-family: system-ui } .dark body { background: #1b1b1f; color: #dfdfd6 } ${style}</style></head>
    <body><main><h1>Playground</h1><div class="playground"></div></main>
    <script>document.documentElement.classList.toggle("dark", matchMedia("(prefers-color-scheme: dark)").matches)</script>
    <script type="module">${outputFiles[0]!.text.replaceAll("</script", "<\\/script")}</script></body></html>`;
  server.on("request", (_request, response) => {
    response.setHeader("content-type", "text/html; charset=utf-8");
    response.end(page);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
}, 600_000);
afterAll(async () => {
  server.close();
  await consumer.remove();
});

/** A number beside a time line. */
async function figureOf(page: Page, name: string, label: string): Promise<number> {
  const row = page.locator(`[data-name="${name}"]`);
  const text = await row.locator("dl div", { hasText: label }).locator("dd").textContent();
  return Number(text);
}

/** The pixels of the time lines. */
async function picturesOf(page: Page): Promise<unknown> {
  return page.evaluate(
    `[...document.querySelectorAll("canvas")].map((canvas) => canvas.toDataURL())`,
  );
}

describe("the playground", () => {
  it("keeps four processes within the rate, where each alone exceeds it, and asks no server", async () => {
    const { page, requests, errors } = await boards.open(`${url}#traffic=200`);
    await page.locator("canvas").nth(5).waitFor();

    expect(await figureOf(page, "Sluice", "most in one second")).toBeLessThanOrEqual(51);
    expect(await figureOf(page, "Sluice", "refused")).toBe(0);
    expect(await figureOf(page, "Bottleneck: minTime", "most in one second")).toBeGreaterThan(150);
    expect(await figureOf(page, "Bottleneck: reservoir", "most in one second")).toBeGreaterThan(
      150,
    );
    expect(
      requests.filter((asked) => !asked.startsWith(url) && !asked.startsWith("data:")),
    ).toEqual([]);
    expect(errors).toEqual([]);
  });

  it("follows its controls, also by the keyboard, and puts them into the link", async () => {
    const { page, errors } = await boards.open(url);
    const rate = page.getByLabel("Rate", { exact: false }).first();
    await rate.focus();

    await page.keyboard.press("Home");
    await page.keyboard.press("ArrowRight");

    await page.locator("code", { hasText: 'rate: "10/s"' }).waitFor();
    expect(new URL(page.url()).hash).toBe("#rate=10");
    expect(await figureOf(page, "Sluice", "most in one second")).toBeLessThanOrEqual(11);
    expect(errors).toEqual([]);
  });

  it("shows the same to everyone who opens the link", async () => {
    const first = await boards.open(url);
    await first.page.getByRole("button", { name: "A loud tenant" }).click();
    await first.page.getByText("Tenant 4").waitFor();

    const second = await boards.open(first.page.url());
    await second.page.getByText("Tenant 4").waitFor();

    expect(await picturesOf(second.page)).toEqual(await picturesOf(first.page));
  });

  it("lets quiet tenants pass a loud one", async () => {
    const { page } = await boards.open(`${url}#tenants=4&loud=85&traffic=90`);
    const wait = async (name: string): Promise<string | null> =>
      page
        .locator(`[data-name="${name}"] dl div`, { hasText: "median wait of other tenants" })
        .locator("dd")
        .textContent();

    await page.getByText("Tenant 4").waitFor();

    expect(await wait("Sluice")).toMatch(/^\d+ ms$/);
    expect(await wait("Token bucket")).toMatch(/^\d\.\d s$/);
  });

  it("draws the calls one after the other when played, and all of them when stopped", async () => {
    const { page } = await boards.open(url);
    await page.locator("canvas").nth(5).waitFor();
    const all = await picturesOf(page);

    await page.getByRole("button", { name: "Play" }).click();
    const stop = page.getByRole("button", { name: "Stop" });
    await stop.waitFor();
    const some = await picturesOf(page);
    await stop.click();
    await page.getByRole("button", { name: "Play" }).waitFor();

    expect(some).not.toEqual(all);
    expect(await picturesOf(page)).toEqual(all);
  });

  it.each([
    ["light", 1280],
    ["light", 390],
    ["dark", 1280],
    ["dark", 390],
  ] as const)("is readable and fits: %s, %i px wide", async (theme, width) => {
    const { page } = await boards.open(`${url}#tenants=4&loud=85&traffic=90`, { theme, width });
    await page.getByText("Tenant 4").waitFor();
    const { BOARD_PICTURES: folder } = process.env;
    const path = folder && join(folder, `playground-${theme}-${width}.png`);
    if (path) await page.screenshot({ path, fullPage: true });

    expect(await seriousOf(page)).toEqual([]);
    expect(await page.evaluate("document.documentElement.scrollWidth - innerWidth")).toBe(0);
  });
});
