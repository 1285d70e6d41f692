import { readFileSync } from "node:fs";

/** The version of this package. The build replaces this module by one that contains the text. */
export function readVersion(): string {
  const text = readFileSync(new URL("../../package.json", import.meta.url), "utf8");
  return (JSON.parse(text) as { readonly version: string }).version;
}
