import { spawn } from "node:child_process";
import { once } from "node:events";
import { cp, mkdir, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { startRedis } from "../support/redis/local-redis.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const CONSUMER = fileURLToPath(new URL("./consumer", import.meta.url));
const NPM_INSTALL = ["install", "--no-package-lock", "--prefer-offline", "--loglevel", "error"];

/** Long searches through the arithmetic of draws, which is the same on every version of Node. */
const ARITHMETIC = [
  "test/conformance/mixes/**",
  "test/conformance/fair/**",
  "test/conformance/pools/**",
  "test/conformance/draw/random-histories.test.ts",
  "test/unit/throttle/waiting/keys/keys-of-replicas.test.ts",
];
/** The newest version with long-term support. */
const LTS = "24";

const [version = LTS] = process.argv.slice(2);
const folders = [dirname(await installNode(version)), process.env["PATH"]];
const env = { ...process.env, PATH: folders.join(delimiter) };

await run("node", ["--version"], ROOT);
// All are run, so that one run shows all there is to mend.
const failures = [await failureOf(runTests), await failureOf(usePackage)].filter(
  (failure) => failure !== undefined,
);
for (const failure of failures) console.error(`Node ${version}: ${failure}`);
process.exitCode = failures.length === 0 ? 0 : 1;

/**
 * The program of a version of Node. The npm package `node` fetches the package
 * of the platform by a script, which npm may not run; so this names that package.
 */
async function installNode(wanted: string): Promise<string> {
  const { platform, arch } = process;
  const prefix = platform === "darwin" && arch === "arm64" ? "node-bin" : "node";
  const name = `${prefix}-${platform === "win32" ? "win" : platform}-${arch}`;
  const home = join(ROOT, "node_modules/.cache/node", wanted);
  await mkdir(home, { recursive: true });
  await writeFile(join(home, "package.json"), '{ "private": true }');
  await run("npm", [...NPM_INSTALL, `${name}@${wanted}`], home, process.env);
  return join(home, "node_modules", name, "bin/node");
}

async function runTests(): Promise<void> {
  const vitest = join(ROOT, "node_modules/vitest/vitest.mjs");
  const projects = ["--project", "unit", "--project", "conformance"];
  const without = ARITHMETIC.flatMap((files) => ["--exclude", files]);
  await run(
    "node",
    [vitest, "run", ...projects, ...without, "test/unit", "test/conformance"],
    ROOT,
  );
}

/** Installs the package as a service does, and uses it from both kinds of modules. */
async function usePackage(): Promise<void> {
  const home = await mkdtemp(join(tmpdir(), "sluice-consumer-"));
  const redis = await startRedis();
  try {
    await cp(CONSUMER, home, { recursive: true });
    await writeFile(join(home, "package.json"), '{ "private": true }');
    await run("npm", ["pack", "--silent", "--pack-destination", home], ROOT);
    const tarballs = (await readdir(home)).filter((file) => file.endsWith(".tgz"));
    await run(
      "npm",
      [...NPM_INSTALL, "--engine-strict", ...tarballs.map((file) => `./${file}`)],
      home,
    );
    for (const file of ["import.mjs", "require.cjs"]) {
      await run("node", [file], home, { ...env, REDIS_URL: redis.url });
    }
  } finally {
    await redis.stop();
    await rm(home, { recursive: true, force: true });
  }
}

async function failureOf(step: () => Promise<void>): Promise<string | undefined> {
  return step().then(
    () => undefined,
    (error: unknown) => (error instanceof Error ? error.message : String(error)),
  );
}

async function run(
  command: string,
  args: readonly string[],
  cwd: string,
  environment: NodeJS.ProcessEnv = env,
): Promise<void> {
  console.log(`> ${command} ${args.join(" ")}`);
  const child = spawn(command, args, { cwd, env: environment, stdio: "inherit" });
  const [code] = (await once(child, "exit")) as [number | null];
  if (code !== 0) throw new Error(`${command} ${args.join(" ")} ended with ${code}`);
}
