import { cpSync, existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";

/** A block of code, code in a line, or a link. */
const LINK = /```[^]*?```|`[^`\n]*`|(!?)\[([^\]]*)\]\(([^)\s]+)\)/g;

/**
 * Mends the links of the Markdown copies in the built site. A copy of `decisions/index.md` is at
 * `decisions.md`, some pages have no copy, and pictures are not in the site.
 *
 * @throws if a link leads to no file of the documentation.
 */
export function linkCopies(docs: string, site: string): void {
  const copies = readdirSync(site, { recursive: true, encoding: "utf8" });
  for (const copy of copies.filter((name) => name.endsWith(".md"))) {
    const index = copy.replace(/\.md$/, "/index.md");
    const source = existsSync(join(docs, copy)) ? copy : index;
    const mended = readFileSync(join(site, copy), "utf8").replaceAll(
      LINK,
      (link, mark: string, text: string, target: string | undefined) => {
        if (target === undefined) return link;
        const [path = "", anchor] = target.split("#");
        if (path === "" || /^\w+:/.test(path)) return link;
        const from = path.startsWith("/") ? docs : dirname(join(docs, source));
        const file = relative(docs, resolve(from, `./${path}`));
        if (file.startsWith("..")) return text;
        if (mark !== "") cpSync(join(docs, file), join(site, file));
        const to = placesOf(file).find((place) => existsSync(join(site, place)));
        if (to === undefined) throw new Error(`${copy} links to ${target}, which does not exist.`);
        const href = relative(dirname(copy), to) + (anchor === undefined ? "" : `#${anchor}`);
        return `${mark}[${text}](${href})`;
      },
    );
    writeFileSync(join(site, copy), mended);
  }
}

/** Where the site may have a file of the documentation, the best place first. */
function placesOf(file: string): string[] {
  return [
    file,
    file.replace(/\/index\.md$/, ".md"),
    file.replace(/\.md$/, ".html"),
    `${file}.html`,
  ];
}
