/**
 * Reads a report of `npm audit --json` from stdin. Lists the vulnerabilities of packages that users get, bundled or as
 * dependencies, and fails if one is high or critical. Passes if the registry is unreachable or offers no audits. `npm
 * audit --json | tsx scripts/shipped/audit.ts [list of the bundled packages]`
 */
import process from "node:process";
import { text } from "node:stream/consumers";
import { readShippedPackages } from "./packages.ts";

interface Report {
  readonly message?: string;
  readonly vulnerabilities?: Readonly<Record<string, Vulnerability>>;
}

interface Vulnerability {
  readonly name: string;
  readonly severity: string;
  /** Where the package is: `"node_modules/undici"`. */
  readonly nodes: readonly string[];
  /** Advisories, and names of vulnerable packages that this one depends on. */
  readonly via: readonly (string | { readonly title: string; readonly url: string })[];
}

const shippedPaths = new Set(readShippedPackages(process.argv[2]).map(({ path }) => path));

const given = await text(process.stdin);
const { message, vulnerabilities } = JSON.parse(given || "{}") as Report;
if (vulnerabilities === undefined) {
  console.log(`npm audit gave no report, so nothing was checked: ${message ?? "no answer"}`);
} else {
  const shipped = Object.values(vulnerabilities).filter(({ nodes }) =>
    nodes.some((path) => shippedPaths.has(path)),
  );
  for (const { name, severity, via } of shipped) {
    const reasons = via.map((each) =>
      typeof each === "string" ? each : `${each.title} (${each.url})`,
    );
    console.log(`${severity}: ${name}: ${reasons.join("; ")}`);
  }
  console.log(`npm audit: ${shipped.length} vulnerable packages among those that users get`);
  if (shipped.some(({ severity }) => /^(?:high|critical)$/.test(severity))) process.exitCode = 1;
}
