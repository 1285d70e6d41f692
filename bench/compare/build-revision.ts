import { execFile, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { readFile, symlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { OWN_BUILD } from "./import-build.ts";

const run = promisify(execFile);
const LOCK = "package-lock.json";

export interface RevisionBuild {
  /** The abbreviated hash of the commit. */
  readonly commit: string;
  /** The folder of the built package. */
  readonly root: string;
}

/**
 * Builds a revision in a temporary git worktree, which is removed when this process exits. The worktree shares this
 * tree's packages if both have the same package-lock.json. Otherwise it installs its own packages.
 *
 * @throws TypeError when there is no such commit.
 */
export async function buildRevision(revision: string): Promise<RevisionBuild> {
  const commit = await resolveCommit(revision);
  const parent = mkdtempSync(join(tmpdir(), "sluice-base-"));
  const root = join(parent, "sluice");
  process.once("exit", () => {
    rmSync(parent, { recursive: true, force: true, maxRetries: 5 });
    execFileSync("git", ["worktree", "remove", "--force", root], { cwd: OWN_BUILD });
  });
  // Without a listener, a signal would end the process before its exit event, and the worktree would remain.
  for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => process.exit(1));

  await run("git", ["worktree", "add", "--detach", root, commit], { cwd: OWN_BUILD });
  if (await hasSamePackages(root)) {
    await symlink(join(OWN_BUILD, "node_modules"), join(root, "node_modules"));
  } else {
    await runNpm(root, ["ci", "--prefer-offline", "--silent"]);
  }
  await runNpm(root, ["run", "build", "--silent"]);
  return { commit: commit.slice(0, 8), root };
}

/** Runs npm. If this process ends, ends npm and its child processes, so that none writes into a removed worktree. */
async function runNpm(root: string, args: readonly string[]): Promise<void> {
  const npm = spawn("npm", args, { cwd: root, detached: true, stdio: ["ignore", 2, 2] });
  const ended = once(npm, "exit");
  const kill = (): void => void process.kill(-npm.pid!, "SIGKILL");
  process.prependOnceListener("exit", kill);
  const [code] = (await ended) as [number | null];
  process.off("exit", kill);
  if (code !== 0) throw new Error(`npm ${args.join(" ")} failed in ${root}`);
}

async function resolveCommit(revision: string): Promise<string> {
  const args = ["rev-parse", "--verify", "--quiet", "--end-of-options", `${revision}^{commit}`];
  try {
    const { stdout } = await run("git", args, { cwd: OWN_BUILD });
    return stdout.trim();
  } catch (cause) {
    const message = `--against: no commit is named "${revision}"; pass a branch, a tag or a hash of this repository`;
    throw new TypeError(message, { cause });
  }
}

async function hasSamePackages(root: string): Promise<boolean> {
  const [own, other] = await Promise.all(
    [OWN_BUILD, root].map((folder) => readFile(join(folder, LOCK), "utf8")),
  );
  return own === other;
}
