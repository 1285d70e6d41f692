import { readFile, readdir } from "node:fs/promises";
import { Redis } from "ioredis";
import { afterAll, beforeAll, describe, expect, inject, it, onTestFinished } from "vitest";
import { listenInMemory } from "../../../src/stores/memory/redis/server/listener.ts";
import { STATUS_OF_CODE } from "../../../src/server/problem.ts";
import { startOwnRedis } from "../../support/redis/for-one-test.ts";
import { startRedis } from "../../support/redis/local-redis.ts";
import type { LocalRedis } from "../../support/redis/private-redis.ts";
import { postgresForFile } from "../../support/postgres/local-postgres.ts";
import { docBlocks, runDocBlock } from "../../support/docs/doc-blocks.ts";

/** Folders whose pages need no code that runs: they explain, or they are generated. */
const WITHOUT_BLOCKS =
  /^(?:concepts|decisions|reference\/api)\/|^(?:index|playground|guides\/(?:migrate|operate\/mcp)|start\/(?:install|other-languages))\.md$|^guides\/production\/|^reference\/(?:cli|http|rules-file|changelog)\.md$|^guides\/webhooks\/secrets\.md$/;
const docs = (await readdir("docs", { recursive: true })).filter(
  (name) => name.endsWith(".md") && !/^(?:node_modules|\.vitepress)\//.test(name),
);
const pages = ["README.md", ...docs.map((name) => `docs/${name}`)];
const blocks = (await Promise.all(pages.map(docBlocks))).flat();

const postgres = postgresForFile();

describe("the documentation", () => {
  // Blocks use the default prefix, so rules of other tests with that prefix would be in force for them.
  let shared: LocalRedis;

  beforeAll(async () => {
    shared = await startRedis({ fresh: true });
  });
  afterAll(() => shared.stop());

  it.each(blocks)("prints what its code blocks promise: $name", async (block) => {
    const run = await runDocBlock(block, {
      redisUrl: shared.url,
      databaseUrl: postgres.url,
      builtRoot: inject("builtRoot"),
    });

    expect(run).toMatchObject({ code: 0, errors: "" });
    for (const output of block.promised) expect(run.output).toContain(output);
  });

  it("has a first example that runs its job, and leaves no job in Redis", async () => {
    const redis = new Redis((await startOwnRedis()).url);
    onTestFinished(() => redis.disconnect());
    const redisUrl = `redis://127.0.0.1:${redis.options.port}`;
    const block = blocks.find(({ name }) => name === "README.md, block 1")!;

    await runDocBlock(block, { redisUrl, builtRoot: inject("builtRoot") });
    const { output } = await runDocBlock(block, { redisUrl, builtRoot: inject("builtRoot") });
    const keys = await redis.keys("*");
    const lasting = await Promise.all(
      keys.map(async (key) => ((await redis.pttl(key)) === -1 ? [key] : [])),
    );

    expect(output).toContain("charged 1200");
    // A fixed number of keys of the queue itself lasts, and no job; all else expires.
    const ofQueue = ["events", "id", "lanes:state", "marker", "meta"];
    const names = ofQueue.map((name) => `sluice:{charges}:${name}`);
    expect(lasting.flat().filter((key) => !names.includes(key))).toEqual([]);
    expect(keys.filter((key) => /\}:\d+$/.test(key))).toEqual([]);
  });

  it("has a first example that also runs on the server in memory", async () => {
    const { url, close } = await listenInMemory();
    onTestFinished(close);
    const block = blocks.find(({ name }) => name === "README.md, block 1")!;

    const run = await runDocBlock(block, { redisUrl: url, builtRoot: inject("builtRoot") });

    expect(run).toMatchObject({ code: 0, errors: "" });
    expect(run.output).toContain("charged 1200");
  });

  it("has a code block on each page that explains a task", () => {
    const withBlocks = new Set(blocks.map(({ name }) => name.split(",")[0]));
    const without = docs.filter((name) => !withBlocks.has(`docs/${name}`));

    expect(without.filter((name) => !WITHOUT_BLOCKS.test(name))).toEqual([]);
  });
});

describe("docs/reference/faults.md", () => {
  it("names each file of test/faults, and no missing test", async () => {
    const page = await readFile("docs/reference/faults.md", "utf8");
    const faults = page.slice(page.indexOf("## Faults"), page.indexOf("### Measured"));
    const cells = faults.matchAll(/`(?:test\/)?([a-z0-9]+(?:[/-][a-z0-9]+)*(?:-\*)?)`(?=[,.; |])/g);
    const named = [...cells].map(([, name]) => name!);
    const tests = (await readdir("test", { recursive: true }))
      .filter((path) => path.endsWith(".test.ts"))
      // The page names a test of test/faults by its file, and any other by its path.
      .map((path) => path.replace(/^faults\/(?:.*\/)?/, "").slice(0, -".test.ts".length));
    const isMeant = (name: string, test: string): boolean =>
      name.endsWith("*") ? test.startsWith(name.slice(0, -1)) : test === name;

    const unnamed = tests.filter((test) => !named.some((name) => isMeant(name, test)));
    expect(unnamed.filter((test) => !test.includes("/"))).toEqual([]);
    expect(named.filter((name) => !tests.some((test) => isMeant(name, test)))).toEqual([]);
  });
});

describe("docs/reference/errors.md", () => {
  it("names exactly the existing classes and codes", async () => {
    const files = ["src/core/errors.ts", "src/queue/errors.ts", "src/webhooks/errors.ts"];
    const sources = await Promise.all(files.map((file) => readFile(file, "utf8")));
    const page = await readFile("docs/reference/errors.md", "utf8");

    const inSource = [
      ...sources.join("\n").matchAll(/readonly name = "(\w+)";\s+readonly code = "(\w+)"/g),
    ];
    const onPage = [...page.matchAll(/^\| `(\w+)` +\| `(ERR_\w+)`/gm)];

    const pairs = (found: RegExpMatchArray[]): string[] =>
      found.map(([, name, code]) => `${name} ${code}`).sort();
    expect(pairs(onPage)).toEqual(pairs(inSource));
    expect(inSource.length).toBeGreaterThan(5);
  });

  it("names the codes that exist only over HTTP, with their statuses", async () => {
    const page = await readFile("docs/reference/errors.md", "utf8");

    const onPage = [...page.matchAll(/^\| `(ERR_\w+)` +\| (\d+)/gm)].map(([, code, status]) => [
      code,
      Number(status),
    ]);
    const ofClasses = [...page.matchAll(/^\| `\w+` +\| `(ERR_\w+)`/gm)].map(([, code]) => code);

    const ofHttp = Object.entries(STATUS_OF_CODE).filter(([code]) => !ofClasses.includes(code));
    expect(Object.fromEntries(onPage)).toEqual(Object.fromEntries(ofHttp));
  });
});
