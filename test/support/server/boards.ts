import { join } from "node:path";
import process from "node:process";
import axe from "axe-core";
import type { Browser, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll } from "vitest";
import { openBrowser } from "./browser.ts";

interface OpenedPage {
  readonly page: Page;
  /** All that the page asked for. */
  readonly requests: readonly string[];
  /** What it wrote to its console as an error, and what it threw. */
  readonly errors: readonly string[];
}

interface Look {
  readonly theme?: "light" | "dark";
  readonly width?: number;
}

export interface OpenBoards {
  open(url: string, look?: Look): Promise<OpenedPage>;
}

/** A browser for a test file; its pages are closed after each test. */
export function openBoards(): OpenBoards {
  let browser: Browser | undefined;
  let pages: Page[] = [];
  beforeAll(async () => {
    browser = await openBrowser();
  }, 700_000);
  afterEach(async () => {
    await Promise.all(pages.map((page) => page.close()));
    pages = [];
  });
  afterAll(() => browser?.close());

  return {
    async open(url, { theme = "light", width = 1280 } = {}) {
      const viewport = { width, height: 900 };
      const page = await browser!.newPage({
        viewport,
        colorScheme: theme,
        serviceWorkers: "block",
      });
      pages.push(page);
      page.setDefaultTimeout(60_000);
      const requests: string[] = [];
      const errors: string[] = [];
      page.on("request", (request) => requests.push(request.url()));
      page.on("pageerror", (error) => errors.push(String(error)));
      page.on("console", (message) => {
        if (message.type() === "error") errors.push(message.text());
      });
      await page.goto(url);
      return { page, requests, errors };
    },
  };
}

interface Violation {
  readonly id: string;
  readonly impact: string;
  readonly nodes: readonly { readonly html: string }[];
}

/** What axe-core finds that keeps people from using the page. */
export async function seriousOf(page: Page): Promise<string[]> {
  // The page lets no script be added to it; what a debugger evaluates is not of the page.
  await page.evaluate(axe.source);
  const found = (await page.evaluate("axe.run()")) as { readonly violations: readonly Violation[] };
  return found.violations
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(" ")}`);
}

/** Where pictures of the views go, to be looked at; nowhere unless `$BOARD_PICTURES` names a folder. */
export async function takePicture(page: Page, hash: string): Promise<void> {
  const { BOARD_PICTURES: folder } = process.env;
  if (folder === undefined) return;
  const { theme, width } = (await page.evaluate(
    `({ theme: matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light", width: innerWidth })`,
  )) as { theme: string; width: number };
  const name = `${hash.replaceAll(/\W+/g, "-")}-${theme}-${width}.png`;
  await page.screenshot({ path: join(folder, name), fullPage: true });
}

/**
 * What keeps people from using the views of a board in either theme: serious findings, and content that is wider than the
 * window.
 */
export async function flawsOf(
  page: Page,
  url: string,
  views: readonly (readonly [hash: string, shown: string])[],
): Promise<string[]> {
  const flaws: string[] = [];
  for (const [hash, shown] of views) {
    await page.goto(`${url}/${hash}`);
    await page.locator(shown).first().waitFor();
    for (const colorScheme of ["light", "dark"] as const) {
      await page.emulateMedia({ colorScheme });
      await takePicture(page, hash);
      flaws.push(...(await seriousOf(page)).map((each) => `${hash}, ${colorScheme}: ${each}`));
    }
    const overflow = await page.evaluate("document.documentElement.scrollWidth - innerWidth");
    if (overflow !== 0) flaws.push(`${hash}: ${String(overflow)} px too wide`);
  }
  return flaws;
}
