import { expect, it } from "vitest";
import { replaceFigures, replaceRows } from "../../rounds/replace-figures.ts";

const [BEGIN, END] = [
  "<!-- figures: begin, written by npm run faults -->",
  "<!-- figures: end -->",
];

it("replaces the last figures, and keeps the rest", () => {
  const page = `before\n${BEGIN}\n\nold\n\n${END}\nafter`;

  expect(replaceFigures(page, "new")).toBe(`before\n${BEGIN}\n\nnew\n\n${END}\nafter`);
  expect(replaceFigures(replaceFigures(page, "new"), "new")).toBe(replaceFigures(page, "new"));
});

it("replaces the rows of some tests, and keeps the others", () => {
  const table = (...rows: string[]): string =>
    ["| fault | lost | test |", "| --- | --- | --- |", ...rows].join("\n");
  const page = replaceFigures(
    `${BEGIN}\n${END}`,
    `3 rounds\n\n${table("| x | 0 | `a` |", "| y | 1 | `b` |", "| z | 2 | `b` |", "| w | 3 | `c` |")}`,
  );

  const replaced = replaceRows(page, table("| y | 4 | `b` |", "| v | 5 | `bb` |"));

  expect(replaced).toBe(
    `${BEGIN}\n\n3 rounds\n\n${table("| x | 0 | `a` |", "| y | 4 | `b` |", "| v | 5 | `bb` |", "| w | 3 | `c` |")}\n\n${END}`,
  );
});

it.each(["no marks", BEGIN, END, `${END} ${BEGIN}`])("refuses a page with %s", (page) => {
  expect(() => replaceFigures(page, "new")).toThrow("needs");
});
