import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { describe, expect, it } from "vitest";
import packageJson from "../../../package.json" with { type: "json" };

interface Bom {
  readonly bomFormat: string;
  readonly metadata: { readonly component: { readonly name: string; readonly version: string } };
  readonly components: readonly {
    readonly "bom-ref": string;
    readonly name: string;
    readonly properties: readonly { readonly name: string }[];
  }[];
  readonly dependencies: readonly { readonly ref: string; readonly dependsOn: readonly string[] }[];
}

const { stdout } = await promisify(execFile)("npm", ["run", "--silent", "sbom"], {
  maxBuffer: 64 * 1024 * 1024,
});
const bom = JSON.parse(stdout) as Bom;
const refs = bom.components.map((component) => component["bom-ref"]);

/** The names of a component's properties. */
function propertiesOf(name: string): readonly string[] {
  const component = bom.components.find((each) => each.name === name);
  return component!.properties.map((property) => property.name);
}

describe("the bill of materials", () => {
  it("is a CycloneDX document of this package and version", () => {
    const { name, version } = packageJson;

    expect(bom.bomFormat).toBe("CycloneDX");
    expect(bom.metadata.component).toMatchObject({ name, version });
  });

  it("lists the dependencies, and what these depend on", () => {
    const names = bom.components.map(({ name }) => name);

    expect(names).toEqual(
      expect.arrayContaining([...Object.keys(packageJson.dependencies), "msgpackr"]),
    );
    expect(propertiesOf("bullmq")).toEqual([]);
  });

  it("lists bundled packages as bundled, not as tools of the developers", () => {
    expect(propertiesOf("undici")).toEqual(["cdx:npm:package:bundled"]);
  });

  it("lists no package that only development needs", () => {
    const names = bom.components.map(({ name }) => name);

    expect(names).not.toContain("vitest");
    expect(names).not.toContain("typescript");
  });

  it("refers only to packages that it lists", () => {
    const mentioned = bom.dependencies.flatMap(({ dependsOn }) => dependsOn);

    expect(refs).toEqual(expect.arrayContaining(mentioned));
    expect(mentioned).not.toEqual([]);
  });
});
