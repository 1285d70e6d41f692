const BEGIN = "<!-- figures: begin, written by npm run faults -->";
const END = "<!-- figures: end -->";

/**
 * Replaces the figures of a page.
 *
 * @throws Error when the page has no place for figures.
 */
export function replaceFigures(page: string, figures: string): string {
  const { before, after } = split(page);
  return `${before}\n\n${figures}\n\n${after}`;
}

/**
 * Replaces the rows of a page's table whose tests are in another table of figures, and adds those that are new.
 *
 * @throws Error when the page has no place for figures.
 */
export function replaceRows(page: string, table: string): string {
  const rows = rowsOf(table);
  const measured = new Set(rows.map(testOf));
  const lines = split(page).figures.split("\n");
  const first = lines.findIndex((line) => RULE.test(line)) + 1;
  const kept = rowsOf(lines.join("\n")).filter((row) => !measured.has(testOf(row)));
  const sorted = [...kept, ...rows].toSorted((a, b) => testOf(a).localeCompare(testOf(b)));
  return replaceFigures(page, [...lines.slice(0, first), ...sorted].join("\n"));
}

const RULE = /^\| -+ \|/;

/** The rows of a table, without its head. */
function rowsOf(text: string): string[] {
  const lines = text.split("\n").filter((line) => line.startsWith("|"));
  return lines.slice(lines.findIndex((line) => RULE.test(line)) + 1);
}

/** The name of a row's test: its last cell. */
function testOf(row: string): string {
  return row.split("|").at(-2)!.trim();
}

function split(page: string): {
  readonly before: string;
  readonly figures: string;
  readonly after: string;
} {
  const begin = page.indexOf(BEGIN);
  const to = page.indexOf(END, begin);
  if (begin === -1 || to === -1) throw new Error(`A page of figures needs ${BEGIN} and ${END}.`);
  const from = begin + BEGIN.length;
  return {
    before: page.slice(0, from),
    figures: page.slice(from, to).trim(),
    after: page.slice(to),
  };
}
