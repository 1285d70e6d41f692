import { fork, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import process from "node:process";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const END_WITH_PARENT = new URL("end-with-parent.ts", import.meta.url).href;
/** What a child may take to close cleanly. */
const END_LIMIT_MS = 10_000;

export interface ChildOptions {
  readonly args?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** What Node itself is told. */
  readonly nodeArgs?: readonly string[];
}

/** Starts a TypeScript file, given by its path from the root of the repository, as a process of its own. */
export function startChild(path: string, options: ChildOptions = {}): ChildProcess {
  const { args = [], env = {}, nodeArgs = [] } = options;
  return fork(fileURLToPath(new URL(path, `file://${ROOT}`)), args, {
    cwd: ROOT,
    env: { ...process.env, ...env },
    execArgv: [
      "--conditions=@sluice/source",
      "--import",
      "tsx",
      "--import",
      END_WITH_PARENT,
      ...nodeArgs,
    ],
    // Not of this process group, so that Ctrl-C reaches the demo alone, which then ends them in order.
    detached: true,
    stdio: ["ignore", "pipe", "pipe", "ipc"],
  });
}

export function isRunning(child: ChildProcess): boolean {
  return child.pid !== undefined && child.exitCode === null && child.signalCode === null;
}

/** Ends a child, by force when it does not close in time, and waits until it is gone. */
export async function endChild(child: ChildProcess): Promise<void> {
  if (!isRunning(child)) return;
  const ended = once(child, "exit");
  const force = setTimeout(() => child.kill("SIGKILL"), END_LIMIT_MS);
  child.kill("SIGTERM");
  // A child that somebody has stopped would not see the first signal.
  child.kill("SIGCONT");
  await ended;
  clearTimeout(force);
}
