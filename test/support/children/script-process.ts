import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { afterEach, inject } from "vitest";

const ROOT = fileURLToPath(new URL("../../../", import.meta.url));

/** A file of the repository that runs as a process of its own. */
export interface ScriptProcess {
  readonly pid: number;
  /** What it wrote so far. */
  readonly stdout: string;
  readonly stderr: string;
  signal(name: NodeJS.Signals): void;
  /** Closes this end of its standard output, as `head` does. */
  readNoMore(): void;
  /** Its exit code, or null if a signal ended it; all that it wrote is then known. */
  readonly ended: Promise<number | null>;
}

export interface ScriptProcesses {
  /** Runs a file, named from the root of the repository. */
  start(file: string, options: ScriptOptions): ScriptProcess;
}

interface ScriptOptions {
  readonly args?: readonly string[];
  /** Added to the environment; undefined takes a variable out. */
  readonly env?: Readonly<Record<string, string | undefined>>;
  /** Run the file itself, and not what is built of it, which starts sooner. Defaults to false. */
  readonly isSource?: boolean;
}

/** Scripts of this test file; those that a test leaves are killed after it. */
export function scriptProcesses(): ScriptProcesses {
  let living: { readonly kill: () => void; readonly ended: Promise<unknown> }[] = [];
  afterEach(async () => {
    const left = living;
    living = [];
    for (const { kill } of left) kill();
    await Promise.all(left.map(({ ended }) => ended));
  });

  return {
    start(file, { args = [], env = {}, isSource = false }) {
      const command = isSource
        ? ["--conditions=@sluice/source", "--import", "tsx", file]
        : [file.replace(/^src\/cli\/main\.ts$/, "dist/cli.js").replace(/\.ts$/, ".js")];
      const child = spawn(process.execPath, [...command, ...args], {
        cwd: isSource ? ROOT : inject("builtRoot"),
        env: { ...process.env, ...env },
        stdio: ["ignore", "pipe", "pipe"],
      });
      let stdout = "";
      let stderr = "";
      child.stdout.on("data", (chunk: Buffer) => (stdout += chunk.toString()));
      child.stderr.on("data", (chunk: Buffer) => (stderr += chunk.toString()));
      const ended = once(child, "close").then(([code]) => code as number | null);
      living.push({ kill: () => child.kill("SIGKILL"), ended });
      return {
        pid: child.pid!,
        get stdout() {
          return stdout;
        },
        get stderr() {
          return stderr;
        },
        signal: (name) => void child.kill(name),
        readNoMore: () => void child.stdout.destroy(),
        ended,
      };
    },
  };
}
