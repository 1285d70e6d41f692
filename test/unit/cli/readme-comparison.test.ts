import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { replaceComparison } from "../../../scripts/readme-comparison.ts";

it("replaces the comparison in the README, and keeps the rest", () => {
  const readme = readFileSync("README.md", "utf8");

  const replaced = replaceComparison(readme, "| new |\n");

  expect(replaced).toContain(
    "written by npm run compare -->\n\n| new |\n\n<!-- comparison: end -->",
  );
  expect(replaced.split("<!--")[0]).toBe(readme.split("<!--")[0]);
  expect(replaced.split("-->").at(-1)).toBe(readme.split("-->").at(-1));
});

it("refuses a page that has no place for the comparison", () => {
  expect(() => replaceComparison("# A page", "| new |")).toThrow("comparison: begin");
});
