import { execFile } from "node:child_process";
import { cp, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const run = promisify(execFile);
const ROOT = fileURLToPath(new URL("../../../", import.meta.url));
/** What child processes run. */
const SCRIPTS = ["workers", "examples", "test/support/processes", "test/support/llm"];

export interface BuiltPackage {
  readonly root: string;
  remove(): Promise<void>;
}

/** This package as users install it, with the files that tests run as processes beside it, all in JavaScript. */
export async function buildPackage(): Promise<BuiltPackage> {
  const root = await mkdtemp(join(tmpdir(), "sluice-built-"));
  const config = {
    extends: join(ROOT, "tsconfig.check.json"),
    compilerOptions: {
      noEmit: false,
      // Types are checked elsewhere.
      noCheck: true,
      types: [],
      // The scripts use what is built, and not the sources.
      customConditions: [],
      rootDir: ROOT,
      outDir: root,
    },
    include: SCRIPTS.map((folder) => join(ROOT, folder)),
  };
  await writeFile(join(root, "tsconfig.json"), JSON.stringify(config));
  await cp(join(ROOT, "package.json"), join(root, "package.json"));
  // Examples that find no Redis load one in memory from the sources.
  await cp(join(ROOT, "lua"), join(root, "lua"), { recursive: true });
  await symlink(join(ROOT, "node_modules"), join(root, "node_modules"));
  const bin = (name: string): string => join(ROOT, "node_modules/.bin", name);
  await Promise.all([
    run(bin("tsc"), ["-p", root]),
    run(bin("tsx"), [join(ROOT, "scripts/build.ts"), root, "--without-types"]),
  ]);
  return { root, remove: () => rm(root, { recursive: true, force: true }) };
}
