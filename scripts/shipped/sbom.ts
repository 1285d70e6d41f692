/**
 * Reads the CycloneDX document of `npm sbom` from stdin, and prints the bill of materials of what users get. `npm run
 * --silent sbom`, after a build
 *
 * `npm sbom --omit dev` can do neither half of this. It leaves out bundled packages, and also every dependency that is
 * an optional peer of a development package (https://github.com/npm/cli/issues/7909).
 */
import process from "node:process";
import { text } from "node:stream/consumers";
import { readShippedPackages } from "./packages.ts";
import packageJson from "../../package.json" with { type: "json" };

interface Component {
  readonly "bom-ref": string;
  readonly name: string;
  readonly properties: readonly { readonly name: string; readonly value: string }[];
}

interface Bom {
  readonly metadata: { readonly component: Component };
  readonly components: readonly Component[];
  readonly dependencies: readonly { readonly ref: string; readonly dependsOn: readonly string[] }[];
}

/** Of the names in CycloneDX's taxonomy for npm, those that depend on how Sluice is built. */
const BUNDLED = { name: "cdx:npm:package:bundled", value: "true" };
const DEVELOPMENT = "cdx:npm:package:development";

const bom = JSON.parse(await text(process.stdin)) as Bom;
const root = bom.metadata.component;
const isBundled = new Map(
  readShippedPackages(process.argv[2]).map((each) => [
    `${each.name}@${each.version}`,
    each.isBundled,
  ]),
);
const known = new Set(bom.components.map((component) => component["bom-ref"]));
const missing = [...isBundled.keys()].filter((ref) => !known.has(ref));
if (missing.length > 0) {
  throw new Error(`npm sbom does not list ${missing.join(", ")}; run npm ci and npm run build`);
}
const shipped = {
  ...bom,
  // npm gives the project the name of its folder.
  metadata: { ...bom.metadata, component: { ...root, name: packageJson.name } },
  components: bom.components
    .filter((component) => isBundled.has(component["bom-ref"]))
    .map((component) => ({
      ...component,
      properties: [
        ...component.properties.filter(({ name }) => name !== DEVELOPMENT),
        ...(isBundled.get(component["bom-ref"]) === true ? [BUNDLED] : []),
      ],
    })),
  dependencies: bom.dependencies
    .filter(({ ref }) => ref === root["bom-ref"] || isBundled.has(ref))
    .map(({ ref, dependsOn }) => ({
      ref,
      dependsOn: dependsOn.filter((each) => isBundled.has(each)),
    })),
};
console.log(JSON.stringify(shipped, null, 2));
