import { execFile } from "node:child_process";
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, it, onTestFinished } from "vitest";
import bullmq from "bullmq/package.json" with { type: "json" };
import { installPacked } from "../../support/setup/packed-package.ts";

const run = promisify(execFile);
const MOST_BYTES = 25_000_000;
const MOST_PACKAGES = 30;
const NPM_INSTALL = ["install", "--prefer-offline", "--loglevel=error"];

interface Installed {
  readonly packages: number;
  readonly bytes: number;
}

/** What a service gets that installs this alone. */
async function install(what: string): Promise<Installed> {
  const folder = await mkdtemp(join(tmpdir(), "sluice-size-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  await writeFile(join(folder, "package.json"), '{ "private": true }');
  await run("npm", [...NPM_INSTALL, what], { cwd: folder });

  const modules = join(folder, "node_modules");
  const lock = JSON.parse(await readFile(join(modules, ".package-lock.json"), "utf8")) as {
    readonly packages: object;
  };
  const entries = await readdir(modules, { recursive: true, withFileTypes: true });
  const sizes = await Promise.all(
    entries
      .filter((entry) => entry.isFile())
      .map(async ({ parentPath, name }) => (await stat(join(parentPath, name))).size),
  );
  return {
    packages: Object.keys(lock.packages).length,
    bytes: sizes.reduce((sum, bytes) => sum + bytes, 0),
  };
}

it("installs at most 30 packages and 25 MB", async ({ annotate }) => {
  const packed = await installPacked();
  onTestFinished(() => packed.remove());

  const [ours, ofBullmq] = await Promise.all([
    install(packed.tarball),
    install(`bullmq@${bullmq.version}`),
  ]);

  for (const [name, { packages, bytes }] of Object.entries({ sluice: ours, bullmq: ofBullmq })) {
    await annotate(
      `npm install ${name}: ${packages} packages, ${bytes.toLocaleString("en")} bytes`,
    );
  }
  expect(ours.packages).toBeLessThanOrEqual(MOST_PACKAGES);
  expect(ours.bytes).toBeLessThanOrEqual(MOST_BYTES);
});
