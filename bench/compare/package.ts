/** Measures the cost of importing the package, and of installing it. */
import { execFile } from "node:child_process";
import { readdir, readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { median } from "../fleet/measure.ts";
import type { Scenario } from "./scenario.ts";

const run = promisify(execFile);
const IMPORTS = 11;

export const packageCosts = {
  import: {
    title: "cold import",
    figures: [{ key: "cpuMs", title: "CPU of the whole process, ms", better: "lower", digits: 0 }],
    async run(_run, build) {
      const costsMs: number[] = [];
      for (let turn = 0; turn < IMPORTS; turn++) costsMs.push(await importCpuMs(build));
      return { cpuMs: median(costsMs) };
    },
  },
  size: {
    title: "install size",
    isFixed: true,
    figures: [
      // Bundled packages are in the sum below in any case.
      {
        key: "packageBytes",
        title: "bytes of the package",
        better: "lower",
        digits: 0,
        isJudged: false,
      },
      { key: "allBytes", title: "bytes with its dependencies", better: "lower", digits: 0 },
    ],
    async run(_run, build) {
      const packageBytes = await packedBytes(build);
      return { packageBytes, allBytes: packageBytes + (await dependencyBytes(build)) };
    },
  },
} as const satisfies Readonly<Record<string, Scenario>>;

async function importCpuMs(build: string): Promise<number> {
  const code = `
    process.once("exit", () => {
      const { user, system } = process.cpuUsage();
      console.log((user + system) / 1_000);
    });
    await import("sluice");
  `;
  const args = ["--input-type=module", "--eval", code];
  const { stdout } = await run(process.execPath, args, { cwd: build });
  return Number(stdout);
}

/** Returns the unpacked size of the files that `npm pack` would pack. */
async function packedBytes(build: string): Promise<number> {
  const args = ["pack", "--dry-run", "--json", "--ignore-scripts"];
  const { stdout } = await run("npm", args, { cwd: build, maxBuffer: Infinity });
  const [packed] = JSON.parse(stdout) as { readonly unpackedSize: number }[];
  return packed!.unpackedSize;
}

interface LockedPackage {
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly optionalDependencies?: Readonly<Record<string, string>>;
}

/**
 * Returns the size of the packages that an install adds: those in the lock file that dependencies lead to. Does not
 * use the lock file's development marks, because a package may be both an optional peer and a development dependency.
 */
async function dependencyBytes(build: string): Promise<number> {
  const lock = JSON.parse(await readFile(join(build, "package-lock.json"), "utf8")) as {
    readonly packages: Readonly<Record<string, LockedPackage>>;
  };
  const found = new Set<string>([""]);
  for (const from of found) {
    const { dependencies, optionalDependencies } = lock.packages[from]!;
    for (const name of Object.keys({ ...dependencies, ...optionalDependencies })) {
      const path = nearest(lock.packages, from, name);
      if (path !== undefined) found.add(path);
    }
  }
  found.delete("");
  const sizes = await Promise.all([...found].map((path) => folderBytes(join(build, path))));
  return sizes.reduce((sum, bytes) => sum + bytes, 0);
}

/** Returns the folder in which Node finds a package from the folder of another package. */
function nearest(packages: object, from: string, name: string): string | undefined {
  for (let folder = from; ; folder = folder.slice(0, folder.lastIndexOf("/node_modules/"))) {
    const path = `${folder === "" ? "" : `${folder}/`}node_modules/${name}`;
    if (path in packages) return path;
    if (folder === "") return undefined;
    if (!folder.includes("/node_modules/")) folder = "/node_modules/";
  }
}

/**
 * Returns the size of a package's folder, without nested packages, because the lock file lists them separately.
 * Optional packages may be missing.
 */
async function folderBytes(folder: string): Promise<number> {
  const entries = await readdir(folder, { withFileTypes: true }).catch((error: unknown) => {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return [];
    throw error;
  });
  const sizes = await Promise.all(
    entries.map(async (entry) => {
      if (entry.name === "node_modules") return 0;
      const path = join(folder, entry.name);
      if (entry.isDirectory()) return folderBytes(path);
      return (await stat(path)).size;
    }),
  );
  return sizes.reduce((sum, bytes) => sum + bytes, 0);
}
