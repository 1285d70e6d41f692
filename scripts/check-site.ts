/**
 * Opens each page of the built site at the width of a phone. `npm run check:site`, after `npm run docs:build`
 *
 * Exits with 1 if a page is wider than the window, has no heading, or loads a file that is missing.
 */
import { once } from "node:events";
import { readdirSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { extname, join } from "node:path";
import process from "node:process";
import { openBrowser } from "../test/support/server/browser.ts";
import { siteFile } from "./site-file.ts";

const SITE = join(import.meta.dirname, "../docs/.vitepress/dist");
const TYPES: Readonly<Record<string, string>> = {
  ".html": "text/html",
  ".js": "text/javascript",
  ".css": "text/css",
  ".svg": "image/svg+xml",
};
const MEASURE = `({
  overflow: document.documentElement.scrollWidth - innerWidth,
  headings: document.querySelectorAll("h1").length,
})`;

const server = createServer(async ({ url }, response) => {
  const file = siteFile(SITE, url!);
  response.statusCode = file === undefined ? 404 : 200;
  response.setHeader("content-type", TYPES[extname(file ?? "")] ?? "application/octet-stream");
  response.end(file === undefined ? "" : await readFile(file));
}).listen(0, "127.0.0.1");
await once(server, "listening");
const root = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
const browser = await openBrowser();
const page = await browser.newPage({ viewport: { width: 390, height: 844 } });
const pages = readdirSync(SITE, { recursive: true, encoding: "utf8" })
  .filter((name) => name.endsWith(".html") && name !== "404.html")
  .toSorted();
const flaws: string[] = [];
let path = "";
page.on("response", (response) => {
  if (response.status() >= 400) flaws.push(`${path}: ${response.url()} is missing`);
});
for (path of pages) {
  await page.goto(`${root}/${path}`);
  const { overflow, headings } = (await page.evaluate(MEASURE)) as Record<string, number>;
  if (overflow! > 0) flaws.push(`${path}: ${overflow} px too wide`);
  if (headings === 0) flaws.push(`${path}: no heading`);
}
await browser.close();
server.close();
console.log([...flaws, `${pages.length} pages, ${flaws.length} flaws`].join("\n"));
process.exitCode = pages.length > 0 && flaws.length === 0 ? 0 : 1;
