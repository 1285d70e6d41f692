import { execFile } from "node:child_process";
import { cp, mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { inject } from "vitest";
import packageJson from "../../../package.json" with { type: "json" };

const run = promisify(execFile);
const ROOT = fileURLToPath(new URL("../../../", import.meta.url));

export interface Consumer {
  /** A folder with `node_modules/sluice` in it. */
  readonly folder: string;
  /** Paths of the files that the tarball holds, from the package's root. */
  readonly files: readonly string[];
  readonly tarball: string;
  /** Adds a package that the service installs itself, as a link to that of this repository. */
  link(name: string): Promise<void>;
  remove(): Promise<void>;
}

/**
 * Packs this package, and installs the tarball in a folder of its own. Its dependencies are links to those of this
 * repository, so that nothing is fetched; what it does not declare, it does not find. The package has its declarations
 * only on request, because the compiler takes long to write them.
 */
export async function installPacked({ withTypes = false } = {}): Promise<Consumer> {
  const stage = await mkdtemp(join(tmpdir(), "sluice-packed-"));
  const copied = packageJson.files.filter((name) => name !== "dist" && !name.startsWith("!"));
  for (const path of ["package.json", ...copied]) {
    await cp(join(ROOT, path), join(stage, path), { recursive: true });
  }
  if (withTypes) {
    const build = ["--import", "tsx", join(ROOT, "scripts/build.ts"), stage];
    await run(process.execPath, build, { cwd: ROOT });
  } else {
    await cp(join(inject("builtRoot"), "dist"), join(stage, "dist"), { recursive: true });
  }
  const pack = ["pack", "--ignore-scripts", "--json"];
  const [packed] = JSON.parse((await run("npm", pack, { cwd: stage })).stdout) as [
    { readonly filename: string; readonly files: readonly { readonly path: string }[] },
  ];

  const folder = join(stage, "consumer");
  const installed = join(folder, "node_modules/sluice");
  await mkdir(installed, { recursive: true });
  // A package of its own, or "sluice" would be the package around it.
  await writeFile(join(folder, "package.json"), "{}");
  const tarball = join(stage, packed.filename);
  await run("tar", ["-xzf", tarball, "--strip-components=1", "-C", installed]);
  async function link(name: string): Promise<void> {
    const path = join(folder, "node_modules", name);
    await mkdir(dirname(path), { recursive: true });
    await symlink(join(ROOT, "node_modules", name), path);
  }

  for (const name of [...Object.keys(packageJson.dependencies), "@types/node"]) await link(name);
  return {
    folder,
    files: packed.files.map(({ path }) => path),
    tarball,
    link,
    remove: () => rm(stage, { recursive: true, force: true }),
  };
}
