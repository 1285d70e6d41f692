import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { linkCopies } from "../../../docs/.vitepress/link-copies.ts";

let home: string;
let docs: string;
let site: string;

beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), "sluice-copies-"));
  docs = join(home, "docs");
  site = join(home, "site");
  write("docs/decisions/index.md", "docs/decisions/memory.md", "docs/start/install.md");
  write("docs/reference/api.md", "docs/images/flow.svg", "README.md");
  write("site/decisions.md", "site/decisions/memory.md", "site/reference/api.html");
});
afterEach(() => rmSync(home, { recursive: true }));

function write(...files: readonly string[]): void {
  for (const file of files) writePage(file, "");
}

function writePage(file: string, text: string): void {
  mkdirSync(dirname(join(home, file)), { recursive: true });
  writeFileSync(join(home, file), text);
}

/** What becomes of the copy of `docs/start/install.md` in the site. */
function mended(text: string): string {
  writePage("site/start/install.md", text);
  linkCopies(docs, site);
  return readFileSync(join(site, "start/install.md"), "utf8");
}

describe("a link of a Markdown copy in the built site", () => {
  it.each([
    ["to a page with a copy", "[m](../decisions/memory.md)", "[m](../decisions/memory.md)"],
    ["to the page of a folder", "[d](../decisions/index.md)", "[d](../decisions.md)"],
    ["to a heading", "[d](../decisions/index.md#one)", "[d](../decisions.md#one)"],
    ["from the root", "[d](/decisions/index.md)", "[d](../decisions.md)"],
    ["to a page without a copy", "[a](../reference/api.md)", "[a](../reference/api.html)"],
    ["to a file of the repository", "[r](../../README.md)", "r"],
  ])("is mended: %s", (_which, link, expected) => {
    expect(mended(`Read ${link} first.\n`)).toBe(`Read ${expected} first.\n`);
  });

  it("is mended in the copy of a folder's page, which lies elsewhere than its source", () => {
    writePage("site/decisions.md", "[m](memory.md)");

    linkCopies(docs, site);

    expect(readFileSync(join(site, "decisions.md"), "utf8")).toBe("[m](decisions/memory.md)");
  });

  it("brings its picture into the site", () => {
    expect(mended("![flow](../images/flow.svg)")).toBe("![flow](../images/flow.svg)");
    expect(existsSync(join(site, "images/flow.svg"))).toBe(true);
  });

  it.each([
    ["to a heading of its page", "[h](#one)"],
    ["to another site", "[o](https://example.com/decisions/index.md)"],
    ["in code within a line", "`[d](../decisions/index.md)`"],
    ["in a block of code", "```md\n[d](../decisions/index.md)\n[n](none.md)\n```"],
  ])("stays as it is: %s", (_which, text) => {
    expect(mended(text)).toBe(text);
  });

  it("to nothing ends the build with an error that names page and link", () => {
    expect(() => mended("[n](none.md)")).toThrow(
      "start/install.md links to none.md, which does not exist.",
    );
  });
});
