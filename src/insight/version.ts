import { readFileSync } from "node:fs";

/**
 * Returns the version of this package. The build replaces this module with one that contains the
 * version as text.
 */
export function readVersion(): string {
  const text = readFileSync(new URL("../../package.json", import.meta.url), "utf8");
  return (JSON.parse(text) as { readonly version: string }).version;
}
