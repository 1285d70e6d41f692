import { cp, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { inject, onTestFinished } from "vitest";

/** A copy of the built package whose scripts have other texts, and so other digests; it goes after the test. */
export async function copyPackage(): Promise<string> {
  const root = await mkdtemp(join(tmpdir(), "sluice-copy-"));
  onTestFinished(() => rm(root, { recursive: true, force: true }));
  await cp(inject("builtRoot"), root, { recursive: true, verbatimSymlinks: true });
  const files = await readdir(join(root, "lua"), { recursive: true });
  for (const file of files.filter((name) => name.endsWith(".lua"))) {
    const path = join(root, "lua", file);
    await writeFile(path, `${await readFile(path, "utf8")}\n-- Of another build.\n`);
  }
  return root;
}
