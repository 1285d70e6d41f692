import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { text } from "node:stream/consumers";
import { expect, it, onTestFinished } from "vitest";
import esbuild from "esbuild/package.json" with { type: "json" };
import undici from "undici/package.json" with { type: "json" };

const SCRIPT = join(import.meta.dirname, "../../../scripts/shipped/audit.ts");
const ADVISORY = { title: "Reads past the end", url: "https://advisories.example/1" };

function vulnerable(name: string, severity: string): object {
  return { [name]: { name, severity, nodes: [`node_modules/${name}`], via: [ADVISORY] } };
}

/** Gives the script a report of npm's, for a package that bundles undici and no esbuild. */
async function judge(report: object): Promise<{ readonly code: unknown; readonly output: string }> {
  const folder = await mkdtemp(join(tmpdir(), "sluice-audit-"));
  onTestFinished(() => rm(folder, { recursive: true }));
  const licenses = join(folder, "licenses.txt");
  await writeFile(licenses, `${undici.name} ${undici.version}\n\nMIT License\n`);
  const child = spawn(process.execPath, ["--import", "tsx", SCRIPT, licenses]);
  child.stdin.end(JSON.stringify(report));
  const [output, [code]] = await Promise.all([text(child.stdout), once(child, "exit")]);
  return { code, output };
}

it("fails for a high vulnerability of a bundled package", async () => {
  const { code, output } = await judge({ vulnerabilities: vulnerable("undici", "high") });

  expect(code).toBe(1);
  expect(output).toContain(`high: undici: ${ADVISORY.title} (${ADVISORY.url})`);
});

it("fails for a critical vulnerability of a dependency", async () => {
  const { code } = await judge({ vulnerabilities: vulnerable("bullmq", "critical") });

  expect(code).toBe(1);
});

it("lists a moderate vulnerability, and passes", async () => {
  const { code, output } = await judge({ vulnerabilities: vulnerable("undici", "moderate") });

  expect(code).toBe(0);
  expect(output).toContain("moderate: undici");
});

it("passes if only development needs the vulnerable package", async () => {
  const { code, output } = await judge({ vulnerabilities: vulnerable(esbuild.name, "critical") });

  expect(code).toBe(0);
  expect(output).toContain("0 vulnerable packages among those that users get");
});

it("passes and says so if the registry has no audits", async () => {
  const { code, output } = await judge({ message: "405 Method Not Allowed", statusCode: 405 });

  expect(code).toBe(0);
  expect(output).toContain("nothing was checked: 405 Method Not Allowed");
});
