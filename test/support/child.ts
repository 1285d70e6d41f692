import { fork, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { afterEach } from "vitest";

export interface Child {
  readonly pid: number;
  /** What the child sent so far. */
  readonly messages: readonly unknown[];
  send(message: string): void;
  signal(name: NodeJS.Signals): void;
  /** Its exit code, or null if a signal ended it. */
  readonly ended: Promise<number | null>;
}

export interface ChildOptions {
  /** The folder of a copy of this package, which the child is to run instead. */
  readonly root?: string | undefined;
  /** Another file of test/support/processes, which the child loads first. */
  readonly preload?: string | undefined;
  /** Added to its environment. */
  readonly env?: Readonly<Record<string, string>> | undefined;
}

export interface Children {
  start(file: string, args: readonly string[], options?: ChildOptions): Child;
}

/** Real processes that run a file of test/support/processes; those that a test leaves are killed after it. */
export function children(): Children {
  let started: ChildProcess[] = [];
  afterEach(async () => {
    const living = started.filter((child) => child.exitCode === null && child.signalCode === null);
    started = [];
    for (const child of living) child.kill("SIGKILL");
    await Promise.all(living.map((child) => once(child, "exit")));
  });
  return {
    start(file, args, { root, preload, env } = {}) {
      const folder =
        root === undefined
          ? new URL("processes/", import.meta.url)
          : new URL(`file://${root}/test/support/processes/`);
      const first = preload === undefined ? [] : ["--import", new URL(preload, folder).href];
      const execArgv = ["--conditions=@sluice/source", "--import", "tsx", ...first];
      const child = fork(fileURLToPath(new URL(file, folder)), args, {
        execArgv,
        serialization: "advanced",
        env: { ...process.env, ...env },
      });
      started.push(child);
      const messages: unknown[] = [];
      child.on("message", (message) => messages.push(message));
      return {
        pid: child.pid!,
        messages,
        send: (message) => void child.send(message),
        signal: (name) => void child.kill(name),
        ended: once(child, "exit").then(([code]) => code as number | null),
      };
    },
  };
}
