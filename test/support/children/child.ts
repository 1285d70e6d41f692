import { fork, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterEach, inject, type afterAll } from "vitest";

export interface Child {
  readonly pid: number;
  /** What the child sent so far. */
  readonly messages: readonly unknown[];
  send(message: string): void;
  signal(name: NodeJS.Signals): void;
  /** Its exit code, or null if a signal ended it. */
  readonly ended: Promise<number | null>;
  /** Resolves when it has exited with 0. Otherwise rejects with what it wrote to its standard error. */
  success(): Promise<void>;
}

interface ChildOptions {
  /** The folder of another built package, which the child is to run. Defaults to the one of `global-build.ts`. */
  readonly root?: string | undefined;
  /** Another of the processes' files, which the child loads first. */
  readonly preload?: string | undefined;
  /** Added to its environment. */
  readonly env?: Readonly<Record<string, string>> | undefined;
}

export interface Children {
  /** Runs what is built of a file, which is named as in the sources: `replica.ts`. */
  start(file: string, args: readonly string[], options?: ChildOptions): Child;
}

/** Real processes that run a file of test/support/processes; those that a test leaves are killed after it, or after all. */
export function children(after: typeof afterAll = afterEach): Children {
  let started: ChildProcess[] = [];
  after(async () => {
    const living = started.filter((child) => child.exitCode === null && child.signalCode === null);
    started = [];
    for (const child of living) child.kill("SIGKILL");
    await Promise.all(living.map((child) => once(child, "exit")));
  });
  return {
    start(file, args, { root = inject("builtRoot"), preload, env } = {}) {
      const built = (name: string): string =>
        join(root, "test/support/processes", name.replace(".ts", ".js"));
      const child = fork(built(file), args, {
        execArgv: preload === undefined ? [] : ["--import", pathToFileURL(built(preload)).href],
        serialization: "advanced",
        env: { ...process.env, ...env },
        stdio: ["inherit", "inherit", "pipe", "ipc"],
      });
      started.push(child);
      const messages: unknown[] = [];
      child.on("message", (message) => messages.push(message));
      let stderr = "";
      child.stderr!.on("data", (chunk: Buffer) => {
        stderr += chunk.toString();
        process.stderr.write(chunk);
      });
      const ended = once(child, "close").then(([code]) => code as number | null);
      return {
        pid: child.pid!,
        messages,
        send: (message) => void child.send(message),
        signal: (name) => void child.kill(name),
        ended,
        async success() {
          const code = await ended;
          if (code !== 0) throw new Error(`${file} exited with ${code}:\n${stderr}`);
        },
      };
    },
  };
}
