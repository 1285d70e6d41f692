import { statSync } from "node:fs";
import { join, sep } from "node:path";

/**
 * Returns the file of the site's folder that a URL names. Undefined if the folder does not contain
 * such a file.
 */
export function siteFile(site: string, url: string): string | undefined {
  try {
    const file = join(site, decodeURIComponent(new URL(url, "http://site").pathname));
    return file.startsWith(site + sep) && statSync(file).isFile() ? file : undefined;
  } catch {
    return undefined;
  }
}
