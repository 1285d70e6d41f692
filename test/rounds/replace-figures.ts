const BEGIN = "<!-- figures: begin, written by npm run faults -->";
const END = "<!-- figures: end -->";

/**
 * Replaces the figures of a page.
 *
 * @throws Error when the page has no place for figures.
 */
export function replaceFigures(page: string, figures: string): string {
  const from = page.indexOf(BEGIN);
  const to = page.indexOf(END, from);
  if (from === -1 || to === -1) throw new Error(`A page of figures needs ${BEGIN} and ${END}.`);
  return `${page.slice(0, from + BEGIN.length)}\n\n${figures}\n\n${page.slice(to)}`;
}
