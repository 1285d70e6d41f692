import { execFile } from "node:child_process";
import { cp, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { promisify } from "node:util";
import { build, type BuildOptions } from "esbuild";
import { afterAll, beforeAll, expect, inject, it } from "vitest";

const run = promisify(execFile);
/** What CommonJS within ES modules needs, as esbuild's users write it. */
const BANNER =
  'import { createRequire } from "node:module"; const require = createRequire(import.meta.url);';

let root: string;
let elsewhere: string;

beforeAll(async () => {
  root = await mkdtemp(join(tmpdir(), "sluice-bundle-"));
  elsewhere = await mkdtemp(join(tmpdir(), "sluice-service-"));
  await cp(inject("builtRoot"), root, { recursive: true, verbatimSymlinks: true });
  await run(process.execPath, ["--import", "tsx", "lua/embed.ts", join(root, "dist")]);
  await rm(join(root, "lua"), { recursive: true });
});
afterAll(async () => {
  await rm(root, { recursive: true });
  await rm(elsewhere, { recursive: true });
});

it.each<[string, string, BuildOptions]>([
  ["CommonJS", "service.cjs", { format: "cjs" }],
  ["CommonJS made small", "small.cjs", { format: "cjs", minify: true }],
  ["ES modules", "service.mjs", { format: "esm", banner: { js: BANNER } }],
])("a service in one file of %s has all that it needs", async (_what, name, options) => {
  const outfile = join(elsewhere, name);
  const entryPoints = [join(root, "test/support/processes/bundled.js")];
  await build({
    ...options,
    entryPoints,
    outfile,
    bundle: true,
    platform: "node",
    logLevel: "error",
  });

  const { stdout } = await run(process.execPath, [outfile, inject("redisUrl")]);

  expect(stdout.trim().split("\n")).toEqual([
    "one, two, three",
    expect.stringMatching(/^InvalidOptionError: .* leave "sluice" out of the bundle/),
    "did this",
  ]);
});
