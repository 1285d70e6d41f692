import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { readFile, readdir } from "node:fs/promises";
import { posix } from "node:path";
import { promisify } from "node:util";
import { describe, expect, it } from "vitest";

const run = promisify(execFile);
const pack = await run("npm", ["pack", "--dry-run", "--ignore-scripts", "--json"]);
const [packed] = JSON.parse(pack.stdout) as [{ readonly files: readonly { path: string }[] }];
const shipped = new Set(packed.files.map(({ path }) => path));
const pages = [...shipped].filter((path) => path.endsWith(".md"));

/** Pages that exist on the site only. Its build fails if a link to one of them is dead. */
const GENERATED = /^docs\/reference\/(?:api\/|(?:http|rules-file|changelog)\.md)/;

/** The ids of a page's headings that hosts of repositories and the site both make. */
function idsOf(text: string): ReadonlySet<string> {
  const headings = [...text.matchAll(/^#+ (.+)$/gm)].map(([, heading]) =>
    heading!.replaceAll("`", "").toLowerCase(),
  );
  const onSite = new Set(headings.map(siteIdOf));
  return new Set(headings.map(hostIdOf).filter((id) => onSite.has(id)));
}

/** Hosts of repositories remove punctuation. */
function hostIdOf(heading: string): string {
  const plain = heading.replaceAll(/[^\p{L}\p{N} _-]/gu, "");
  return plain.trim().replaceAll(" ", "-");
}

/** The site replaces punctuation with hyphens. */
function siteIdOf(heading: string): string {
  const hyphenated = heading.replaceAll(/[\s\p{P}\p{S}]+/gu, "-");
  return hyphenated.replaceAll(/^-+|-+$/g, "").replace(/^(?=\d)/, "_");
}

/** The targets of all links of a page, without those in its code. */
function linksOf(text: string): readonly string[] {
  const prose = text.replaceAll(/^```[^]*?^```/gm, "").replaceAll(/`[^`\n]*`/g, "");
  return [...prose.matchAll(/\]\(([^)\s]+)\)/g)].map(([, target]) => target!);
}

/** What is wrong with a link; undefined if it leads somewhere. */
async function problemOf(page: string, link: string): Promise<string | undefined> {
  if (/^https?:/.test(link)) return undefined;
  if (GENERATED.test(posix.join(posix.dirname(page), link))) return undefined;
  const [path = "", id] = link.split("#");
  const target = path === "" ? page : posix.join(posix.dirname(page), path);
  const isFolder = target.endsWith("/") && [...shipped].some((each) => each.startsWith(target));
  if (!shipped.has(target) && !isFolder) return `${page}: ${link} is not in the package`;
  if (id === undefined || idsOf(await readFile(target, "utf8")).has(id)) return undefined;
  return `${page}: ${link} has no such heading, or not with this id on the site`;
}

/** The tests that a page names, by path: a file with or without `.test.ts`, a folder, or a start and `*`. */
function testsNamedIn(text: string): readonly string[] {
  const paths = text.matchAll(/(?<![\w./-])test\/[\w./*-]*[\w*]/g);
  return [...paths].map(([path]) => path);
}

describe("the pages of the package", () => {
  it("are at least the README and all of docs", () => {
    expect(pages).toEqual(
      expect.arrayContaining(["README.md", "docs/start/first-call.md", "docs/cheat-sheet.md"]),
    );
  });

  it.each(pages)("have links that work in the installed package: %s", async (page) => {
    const links = linksOf(await readFile(page, "utf8"));

    const problems = await Promise.all(links.map((link) => problemOf(page, link)));

    expect(problems.filter((problem) => problem !== undefined)).toEqual([]);
  });
});

describe("the pages of the repository", () => {
  it("name only tests and folders of tests that exist", async () => {
    const docs = (await readdir("docs", { recursive: true })).filter(
      (path) => path.endsWith(".md") && !/^(?:node_modules|\.vitepress)\//.test(path),
    );
    const heads = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"];
    const all = [...heads, ...docs.map((path) => `docs/${path}`)];
    const tests = (await readdir("test", { recursive: true })).map((path) => `test/${path}`);
    const exists = (path: string): boolean =>
      path.endsWith("*")
        ? tests.some((test) => test.startsWith(path.slice(0, -1)))
        : tests.includes(path) || tests.includes(`${path}.test.ts`);

    const named = await Promise.all(
      all.map(async (page) =>
        testsNamedIn(await readFile(page, "utf8")).map((path) => ({ page, path })),
      ),
    );

    expect(named.flat()).toContainEqual({
      page: "docs/reference/faults.md",
      path: "test/conformance/draw/random-histories",
    });
    expect(named.flat().filter(({ path }) => !exists(path))).toEqual([]);
  });
});

/** Where the site's configuration and its first page lead: `link: /start/install` and the sidebar's `["start/install"]`. */
const SITE_LINKS = /\blink: "?\/([\w/-]+)|^ {4}\["([\w/-]+)"/gm;

describe("the navigation of the site", () => {
  it.each([
    ["docs/.vitepress/config.ts", ["start/install", "guides/jobs/run-jobs", "cheat-sheet"]],
    ["docs/index.md", ["start/first-call", "guides/jobs/unreachable"]],
  ])("leads to pages that exist: %s", async (file, some) => {
    const found = [...(await readFile(file, "utf8")).matchAll(SITE_LINKS)];
    const links = found.map(([, link, page]) => (link ?? page)!.replace(/\/$/, "/index"));

    const dead = links.map((link) => `docs/${link}.md`).filter((page) => !leadsToPage(page));

    expect(links).toEqual(expect.arrayContaining(some));
    expect(dead).toEqual([]);
  });

  function leadsToPage(page: string): boolean {
    return GENERATED.test(page) || existsSync(page);
  }
});
