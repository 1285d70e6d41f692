import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { checkRules } from "../../../src/rules/read.ts";
import packageJson from "../../../package.json" with { type: "json" };
import { rulesJsonSchema } from "../../../scripts/rules-schema.ts";

describe("sluice.schema.json", () => {
  it("matches the schema of rules files; else run scripts/rules-schema.ts", () => {
    const file = new URL("../../../sluice.schema.json", import.meta.url);

    expect(JSON.parse(readFileSync(file, "utf8"))).toEqual(JSON.parse(rulesJsonSchema()));
  });
});

it("has the address that editors get from the catalog of schemas", () => {
  const read = (path: string): unknown =>
    JSON.parse(readFileSync(new URL(`../../../${path}`, import.meta.url), "utf8"));

  const entry = read("ops/schemastore.json") as { readonly url: string };

  expect(read("sluice.schema.json")).toHaveProperty("$id", entry.url);
  expect(entry.url).toBe(`https://unpkg.com/${packageJson.name}/sluice.schema.json`);
  expect(packageJson.files).toContain("sluice.schema.json");
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
