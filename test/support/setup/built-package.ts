import { execFile } from "node:child_process";
import { cp, mkdtemp, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import packageJson from "../../../package.json" with { type: "json" };

const run = promisify(execFile);
const ROOT = fileURLToPath(new URL("../../../", import.meta.url));
/** What child processes run, and the sources of the package. */
const BUILT = ["src", "workers", "examples", "test/support/processes", "test/support/llm"];

export interface BuiltPackage {
  readonly root: string;
  remove(): Promise<void>;
}

/** This package as users install it, with the files that tests run as processes beside it, all in JavaScript. */
export async function buildPackage(): Promise<BuiltPackage> {
  const root = await mkdtemp(join(tmpdir(), "sluice-built-"));
  const config = {
    extends: join(ROOT, "tsconfig.check.json"),
    // Types are checked elsewhere.
    compilerOptions: { noEmit: false, noCheck: true, types: [], rootDir: ROOT, outDir: root },
    include: BUILT.map((folder) => join(ROOT, folder)),
  };
  await writeFile(join(root, "tsconfig.json"), JSON.stringify(config));
  await symlink("src", join(root, "dist"));
  await cp(join(ROOT, "package.json"), join(root, "package.json"));
  await cp(join(ROOT, "lua"), join(root, "lua"), { recursive: true });
  await symlink(join(ROOT, "node_modules"), join(root, "node_modules"));
  await run(join(ROOT, "node_modules/.bin/tsc"), ["-p", root]);
  // What is JavaScript already, tsc leaves out.
  const sources = await readdir(join(ROOT, "src"), { recursive: true });
  for (const file of sources.filter((name) => name.endsWith(".cjs"))) {
    await cp(join(ROOT, "src", file), join(root, "src", file));
  }
  const page = "src/server/dashboard/page";
  await cp(join(ROOT, page), join(root, page), { recursive: true });
  // In the package each of these is one file.
  for (const { default: file, "@sluice/source": source } of Object.values(packageJson.exports)) {
    const specifier = `./${relative("src", source).replace(/\.ts$/, ".js")}`;
    const from = JSON.stringify(specifier);
    // `export *` leaves the default export out.
    const exported = await readFile(join(root, "src", specifier), "utf8");
    const exportsDefault = /\bas default\b|^export default\b/m.test(exported);
    const text = `export * from ${from};\n${exportsDefault ? `export { default } from ${from};\n` : ""}`;
    await writeFile(join(root, file), text);
  }
  return { root, remove: () => rm(root, { recursive: true, force: true }) };
}
