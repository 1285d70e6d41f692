import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

/** The package in this working tree. */
export const OWN_BUILD: string = fileURLToPath(new URL("../../", import.meta.url));

interface Entries {
  readonly ".": typeof import("sluice");
  readonly "./webhooks": typeof import("sluice/webhooks");
  readonly "./server": typeof import("sluice/server");
}

/**
 * Imports an entry of a built package, so that the same load code can drive any build.
 * `root` is the folder with its package.json and defaults to this working tree.
 *
 * @throws when the package does not export the entry.
 */
export async function importBuild<Entry extends keyof Entries = ".">(
  root: string = OWN_BUILD,
  entry: Entry = "." as Entry,
): Promise<Entries[Entry]> {
  const { exports } = JSON.parse(await readFile(join(root, "package.json"), "utf8")) as {
    readonly exports: Readonly<Partial<Record<string, { readonly default: string }>>>;
  };
  const file = exports[entry]?.default;
  if (file === undefined) throw new Error(`the package does not export "${entry}"`);
  return (await import(pathToFileURL(join(root, file)).href)) as Entries[Entry];
}
