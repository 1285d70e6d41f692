import { readFileSync } from "node:fs";
import { Ajv, type ValidateFunction } from "ajv";
import { describe, expect, it } from "vitest";
import { parse } from "yaml";
import { RULES_FILE } from "../../../src/cli/commands/setup/init-files.ts";
import { checkRules } from "../../../src/rules/read.ts";
import packageJson from "../../../package.json" with { type: "json" };
import { rulesJsonSchema } from "../../../scripts/rules-schema.ts";

describe("sluice.schema.json", () => {
  it("matches the schema of rules files; else run scripts/rules-schema.ts", () => {
    const file = new URL("../../../sluice.schema.json", import.meta.url);

    expect(JSON.parse(readFileSync(file, "utf8"))).toEqual(JSON.parse(rulesJsonSchema()));
  });
});

describe("the entry for the catalog of SchemaStore", () => {
  interface Schema {
    readonly $ref?: string;
    readonly description?: string;
    readonly properties?: Readonly<Record<string, Schema>>;
    readonly definitions?: Readonly<Record<string, Schema>>;
    readonly allOf?: readonly Schema[];
  }

  const read = <Content>(path: string): Content =>
    JSON.parse(readFileSync(new URL(`../../../${path}`, import.meta.url), "utf8")) as Content;
  const schema = read<Schema>("sluice.schema.json");
  const entry = read<Record<"name" | "description" | "url", string> & { fileMatch: string[] }>(
    "ops/schemastore.json",
  );
  /** As the catalog compiles its schemas. */
  const makeCheck = (): ValidateFunction =>
    new Ajv({ strict: true, strictTypes: true, strictTuples: true, strictRequired: true }).compile(
      schema,
    );

  it("has the address of the schema, which the package ships", () => {
    expect(schema).toHaveProperty("$id", entry.url);
    expect(entry.url).toBe(`https://unpkg.com/${packageJson.name}/sluice.schema.json`);
    expect(packageJson.files).toContain("sluice.schema.json");
  });

  it("has the fields and the wording that the catalog accepts", () => {
    expect(Object.keys(entry)).toEqual(["name", "description", "fileMatch", "url"]);
    for (const text of [entry.name, entry.description]) {
      expect(text).not.toMatch(/schema|\n|[,. \t-]$/i);
    }
    expect(entry.fileMatch).toContain(RULES_FILE);
    expect(entry.fileMatch.filter((name) => name.includes("/"))).toEqual([]);
  });

  it("points to a schema of a draft that all common editors read", () => {
    expect(schema).toHaveProperty("$schema", "http://json-schema.org/draft-07/schema#");
    expect(makeCheck).not.toThrow();
  });

  it("points to a schema that describes each key", () => {
    const { definitions = {} } = schema;
    const isDescribed = ({ description, $ref, allOf = [] }: Schema): boolean =>
      description !== undefined ||
      ($ref !== undefined && isDescribed(definitions[$ref.replace("#/definitions/", "")]!)) ||
      allOf.some(isDescribed);
    const undescribed: string[] = [];
    JSON.stringify(schema, (_key, value: Schema | null) => {
      const keys = Object.entries(value?.properties ?? {});
      undescribed.push(...keys.filter(([, each]) => !isDescribed(each)).map(([name]) => name));
      return value;
    });

    expect(undescribed).toEqual([]);
  });

  it("points to a schema that editors apply as the check does", () => {
    const check = makeCheck();
    const files = [
      "buckets: { api: { rate: 50/s, burst: 5 } }",
      "buckets: { api: { limits: [500/min, { kind: budget, unit: usd, amount: 5, per: month }] } }",
      "buckets: { api: { brust: 5 } }",
      "buckets: { api: { limits: [{ kind: leaky, rate: 1/s }] } }",
      "version: 0\nbuckets: {}",
      "version: 1",
    ];

    const accepted = files.map((text) => check(parse(text)));

    expect(accepted).toEqual([true, true, false, false, false, false]);
    expect(files.map((text) => checkRules("rules.yaml", text).problems.length === 0)).toEqual(
      accepted,
    );
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
