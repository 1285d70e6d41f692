const BEGIN = "<!-- figures: begin, written by npm run faults -->";
const END = "<!-- figures: end -->";

/**
 * Puts figures in the place of the last ones.
 *
 * @throws Error when a page has no such place.
 */
export function replaceFigures(page: string, figures: string): string {
  const from = page.indexOf(BEGIN);
  const to = page.indexOf(END, from);
  if (from === -1 || to === -1) throw new Error(`A page of figures needs ${BEGIN} and ${END}.`);
  return `${page.slice(0, from + BEGIN.length)}\n\n${figures}\n\n${page.slice(to)}`;
}
