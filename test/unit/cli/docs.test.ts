import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { cliDocs } from "../../../scripts/cli-docs.ts";

describe("docs/reference/cli.md", () => {
  it("equals the output of --help: run `npx tsx scripts/cli-docs.ts`", async () => {
    const lines = (text: string): string[] =>
      text.split("\n").map((line) => line.replaceAll(/ {2,}|-{3,}/g, " ").trim());

    expect(lines(readFileSync("docs/reference/cli.md", "utf8"))).toEqual(lines(await cliDocs()));
  });

  it("has an example of each command", async () => {
    const sections = (await cliDocs()).split("\n## ").slice(1);

    expect(sections.length).toBeGreaterThan(8);
    expect(sections.filter((section) => !section.includes("Example: sluice "))).toEqual([]);
  });
});
