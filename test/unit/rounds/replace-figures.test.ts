import { expect, it } from "vitest";
import { replaceFigures } from "../../rounds/replace-figures.ts";

const [BEGIN, END] = [
  "<!-- figures: begin, written by npm run faults -->",
  "<!-- figures: end -->",
];

it("puts figures in the place of the last ones, and leaves the rest", () => {
  const page = `before\n${BEGIN}\n\nold\n\n${END}\nafter`;

  expect(replaceFigures(page, "new")).toBe(`before\n${BEGIN}\n\nnew\n\n${END}\nafter`);
  expect(replaceFigures(replaceFigures(page, "new"), "new")).toBe(replaceFigures(page, "new"));
});

it.each(["no marks", BEGIN, END, `${END} ${BEGIN}`])("refuses a page with %s", (page) => {
  expect(() => replaceFigures(page, "new")).toThrow("needs");
});
