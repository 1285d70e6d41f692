import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { checkRules } from "../../../src/rules/read.ts";
import { rulesJsonSchema } from "../../../scripts/rules-schema.ts";

describe("sluice.schema.json", () => {
  it("matches the schema of rules files; else run scripts/rules-schema.ts", () => {
    const file = new URL("../../../sluice.schema.json", import.meta.url);

    expect(JSON.parse(readFileSync(file, "utf8"))).toEqual(JSON.parse(rulesJsonSchema()));
  });
});

it("accepts each file in docs/guides/operate/rules-file.md", () => {
  const text = readFileSync(
    new URL("../../../docs/guides/operate/rules-file.md", import.meta.url),
    "utf8",
  );
  const shown = [...text.matchAll(/```yaml\n([^]*?)```/g)].map(([, yaml]) => yaml!);

  expect(shown.length).toBeGreaterThan(1);
  expect(
    shown.flatMap((yaml) => checkRules("docs/guides/operate/rules-file.md", yaml).problems),
  ).toEqual([]);
});
