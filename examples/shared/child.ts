import { fork, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
/** What this file is at the moment: a source, or JavaScript that was built of it. */
const EXTENSION = import.meta.url.slice(import.meta.url.lastIndexOf("."));
const LOADER = EXTENSION === ".ts" ? ["--conditions=@sluice/source", "--import", "tsx"] : [];
const END_WITH_PARENT = builtOf(new URL("end-with-parent.ts", import.meta.url).href);
/** The time that a child has to close cleanly. */
const END_LIMIT_MS = 10_000;

export interface ChildOptions {
  readonly args?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** Flags for Node itself. */
  readonly nodeArgs?: readonly string[];
  /** The folder of the package to run. Defaults to this package. */
  readonly root?: string | undefined;
}

/** Returns the file that runs in place of a TypeScript file: itself, or what is built of it. */
export function builtOf(path: string): string {
  return path.replace(/\.ts$/, EXTENSION);
}

/** Starts a TypeScript file, or what is built of it, as a child process. The path is relative to the root. */
export function startChild(path: string, options: ChildOptions = {}): ChildProcess {
  const { args = [], env = {}, nodeArgs = [], root = ROOT } = options;
  return fork(join(root, builtOf(path)), args, {
    cwd: root,
    env: { ...process.env, ...env },
    execArgv: [...LOADER, "--import", END_WITH_PARENT, ...nodeArgs],
    // Starts a separate process group, so that Ctrl-C reaches only the parent. The parent then ends its children in
    // order.
    detached: true,
    stdio: ["ignore", "pipe", "pipe", "ipc"],
  });
}

export function isRunning(child: ChildProcess): boolean {
  return child.pid !== undefined && child.exitCode === null && child.signalCode === null;
}

/** Ends a child and waits until it has exited. Kills the child if it does not close in time. */
export async function endChild(child: ChildProcess): Promise<void> {
  if (!isRunning(child)) return;
  const ended = once(child, "exit");
  const force = setTimeout(() => child.kill("SIGKILL"), END_LIMIT_MS);
  child.kill("SIGTERM");
  // Continues a child that SIGSTOP has stopped, because a stopped child does not handle SIGTERM.
  child.kill("SIGCONT");
  await ended;
  clearTimeout(force);
}
