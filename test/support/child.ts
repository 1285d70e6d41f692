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

export interface Children {
  start(file: string, args: readonly string[]): Child;
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
    start(file, args) {
      const path = fileURLToPath(new URL(`processes/${file}`, import.meta.url));
      const execArgv = ["--conditions=@sluice/source", "--import", "tsx"];
      const child = fork(path, args, { execArgv, serialization: "advanced" });
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
