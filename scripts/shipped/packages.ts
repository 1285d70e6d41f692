import { readFileSync } from "node:fs";
import { join } from "node:path";

const ROOT = join(import.meta.dirname, "../..");

interface LockedPackage {
  readonly version: string;
  readonly dev?: boolean;
  readonly devOptional?: boolean;
}

export interface ShippedPackage {
  readonly name: string;
  readonly version: string;
  /** Where `npm ci` installs it: `"node_modules/undici"`. */
  readonly path: string;
  /** Whether its code is in `dist/`. All others are dependencies. */
  readonly isBundled: boolean;
}

/**
 * Lists the packages that users get: those that the build bundles, by the list in `dist/licenses.txt` or another file,
 * and the dependencies with all that these depend on.
 */
export function readShippedPackages(
  licensesFile: string = join(ROOT, "dist/licenses.txt"),
): readonly ShippedPackage[] {
  const lockFile = readFileSync(join(ROOT, "package-lock.json"), "utf8");
  const { packages } = JSON.parse(lockFile) as {
    readonly packages: Readonly<Record<string, LockedPackage>>;
  };
  const licenses = readFileSync(licensesFile, "utf8");
  const bundled = new Set(licenses.split(/^-+$/m).map((part) => part.trim().split("\n", 1)[0]!));
  return Object.entries(packages).flatMap(([path, { version, dev, devOptional }]) => {
    if (path === "") return [];
    const name = path.split("node_modules/").at(-1)!;
    const isBundled = bundled.has(`${name} ${version}`);
    const isDependency = dev !== true && devOptional !== true;
    return isBundled || isDependency ? [{ name, version, path, isBundled }] : [];
  });
}
