import { execFile } from "node:child_process";
import { cp, mkdtemp, rm, symlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const ROOT = fileURLToPath(new URL("../../../", import.meta.url));
/** What the soak's processes need beside the package. */
const PROCESSES = ["test", "bench", "examples"];

/** Puts the sources of a commit into a folder, with this soak's processes; returns the folder, which ends with `cleanup`. */
export async function openBuild(
  commit: string,
  cleanup: { add(end: () => Promise<unknown>): unknown },
): Promise<string> {
  const root = await mkdtemp(join(tmpdir(), "sluice-earlier-"));
  cleanup.add(() => rm(root, { recursive: true, force: true }));
  const archive = join(root, "sources.tar");
  const run = promisify(execFile);
  await run("git", ["archive", "--output", archive, commit], { cwd: ROOT });
  await run("tar", ["xf", archive], { cwd: root });
  for (const folder of PROCESSES) {
    await rm(join(root, folder), { recursive: true, force: true });
    await cp(join(ROOT, folder), join(root, folder), { recursive: true });
  }
  await symlink(join(ROOT, "node_modules"), join(root, "node_modules"));
  return root;
}
