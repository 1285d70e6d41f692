import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import process from "node:process";
import { pathToFileURL } from "node:url";
import { InvalidOptionError } from "../../../core/errors.ts";

/** Imports a package of the project in the current folder. */
export async function importPeer<Module>(name: string): Promise<Module> {
  return (await import(pathToFileURL(pathOf(name)).href)) as Module;
}

/** Returns the version of a package of the project in the current folder. */
export function versionOfPeer(name: string): string {
  for (let folder = dirname(pathOf(name)); ; folder = dirname(folder)) {
    const manifest = readManifest(folder);
    if (manifest?.name === name && manifest.version !== undefined) return manifest.version;
    if (folder === dirname(folder)) return "unknown";
  }
}

/** @throws {@link InvalidOptionError} when the project does not have the package. */
function pathOf(name: string): string {
  try {
    return createRequire(join(process.cwd(), "package.json")).resolve(name);
  } catch {
    const remedy = `the project in this folder does not have it: npm install --no-save ${name}`;
    const where = "sluice conform";
    throw new InvalidOptionError({ where, option: "--against", value: name, remedy });
  }
}

function readManifest(folder: string): { name?: string; version?: string } | undefined {
  try {
    return JSON.parse(readFileSync(join(folder, "package.json"), "utf8")) as object;
  } catch {
    // Most folders of a package have no manifest.
    return undefined;
  }
}
