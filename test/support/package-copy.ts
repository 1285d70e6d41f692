import { cp, mkdtemp, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach } from "vitest";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const COPIED = ["src", "lua", "package.json", "test/support/processes"];

/** Copies of this package whose scripts have other texts, and so other digests; they go after the test. */
export function packageCopies(): { make: () => Promise<string> } {
  let made: string[] = [];
  afterEach(async () => {
    const all = made;
    made = [];
    for (const folder of all) await rm(folder, { recursive: true, force: true });
  });
  return {
    async make() {
      const root = await mkdtemp(join(tmpdir(), "sluice-copy-"));
      made.push(root);
      for (const path of COPIED) await cp(join(ROOT, path), join(root, path), { recursive: true });
      await symlink(join(ROOT, "node_modules"), join(root, "node_modules"));
      const files = await readdir(join(root, "lua"), { recursive: true });
      for (const file of files.filter((name) => name.endsWith(".lua"))) {
        const path = join(root, "lua", file);
        await writeFile(path, `${await readFile(path, "utf8")}\n-- Of another build.\n`);
      }
      return root;
    },
  };
}
