import { spawn } from "node:child_process";
import { once } from "node:events";
import { cp, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { luaMutants, type LuaMutant } from "./lua-mutants.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
/** A mutant may loop for ever, and Redis with it. */
const LIMIT_MS = 300_000;

export type LuaOutcome = "killed" | "survived" | "timeout";

/** A copy of the project, in which one Lua file is changed at a time. */
export interface LuaSandbox {
  /** What the conformance tests make of a mutant. Without one they have to pass. */
  outcomeOf(mutant?: LuaMutant): Promise<LuaOutcome>;
  remove(): Promise<void>;
}

export async function mutantsOf(files: readonly string[]): Promise<readonly LuaMutant[]> {
  const texts = await Promise.all(files.map((file) => readFile(join(ROOT, file), "utf8")));
  return files.flatMap((file, index) => luaMutants(file, texts[index]!));
}

export async function openLuaSandbox(): Promise<LuaSandbox> {
  const root = await mkdtemp(join(tmpdir(), "sluice-mutants-"));
  for (const part of ["src", "lua", "test", "package.json"]) {
    await cp(join(ROOT, part), join(root, part), { recursive: true });
  }
  await symlink(join(ROOT, "node_modules"), join(root, "node_modules"));
  return {
    async outcomeOf(mutant) {
      if (mutant === undefined) return runTests(root);
      const path = join(root, mutant.file);
      const text = await readFile(path, "utf8");
      await writeFile(path, text.slice(0, mutant.from) + mutant.after + text.slice(mutant.to));
      try {
        return await runTests(root);
      } finally {
        await writeFile(path, text);
      }
    },
    remove: () => rm(root, { recursive: true, force: true }),
  };
}

async function runTests(root: string): Promise<LuaOutcome> {
  const vitest = join(root, "node_modules/vitest/vitest.mjs");
  const config = ["--config", "test/mutation/vitest.config.ts", "--root", root];
  const child = spawn(
    process.execPath,
    [vitest, "run", ...config, "--bail", "1", "--maxWorkers", "1", "test/conformance"],
    // A group of its own, so that its Redis can be ended with it.
    { cwd: root, detached: true, stdio: "ignore" },
  );
  let isLate = false;
  const timer = setTimeout(() => {
    isLate = true;
    process.kill(-child.pid!, "SIGKILL");
  }, LIMIT_MS);
  const [code] = (await once(child, "exit")) as [number | null];
  clearTimeout(timer);
  if (isLate) return "timeout";
  return code === 0 ? "survived" : "killed";
}
