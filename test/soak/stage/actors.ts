import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { endChild, isRunning, startChild } from "../../../examples/shared/child.ts";

/** The parent's handle on a soak process. */
export interface ActorProcess<From> {
  readonly name: string;
  readonly pid: number;
  readonly isRunning: boolean;
  /** Its first message, which means that it is ready. */
  readonly first: From;
  send(message: object): void;
  signal(name: NodeJS.Signals): void;
  /** Resolves with its next message of this kind. */
  next<Kind extends string>(kind: Kind): Promise<Extract<From, { readonly kind: Kind }>>;
  /** Ends it; resolves with whether SIGTERM was enough. */
  end(): Promise<boolean>;
}

export interface ActorOptions<From> {
  readonly args?: readonly string[];
  /** The folder of another build, which it is to run. */
  readonly root?: string | undefined;
  readonly onMessage?: (message: From) => void;
  /** Called when it ends unexpectedly. */
  readonly onCrash: (complaint: string) => void;
}

const COMPLAINT_CHARACTERS = 2_000;

/** Starts a file of `processes/` as a process; resolves with its first message. */
export async function startActor<From extends { readonly kind: string }>(
  file: string,
  { args = [], root, onMessage, onCrash }: ActorOptions<From>,
): Promise<ActorProcess<From>> {
  const child = startChild(`test/soak/processes/${file}`, { args, root });
  // Each that waits for a message listens.
  child.setMaxListeners(0);
  let complaint = "";
  let isExpected = false;
  child.stdout!.resume();
  child.stderr!.on("data", (chunk: Buffer) => {
    complaint = (complaint + chunk.toString()).slice(-COMPLAINT_CHARACTERS);
  });
  child.on("message", (message) => onMessage?.(message as From));
  child.on("error", (error) => (complaint += String(error)));
  child.once("exit", (code, signal) => {
    if (!isExpected) onCrash(`${file} ended by itself (${signal ?? code}). ${complaint.trim()}`);
  });
  const [first] = (await Promise.race([once(child, "message"), diedEarly(child, file)])) as [From];

  return {
    name: `${file} ${child.pid}`,
    pid: child.pid!,
    get isRunning() {
      return isRunning(child);
    },
    first,
    send: (message) => void child.send(message),
    signal(name) {
      if (name === "SIGKILL") isExpected = true;
      child.kill(name);
    },
    next: (kind) =>
      new Promise((resolve, reject) => {
        const fail = (): void =>
          reject(
            new Error(
              `${file} ended (${child.signalCode ?? child.exitCode}) before it was "${kind}". ${complaint.trim()}`,
            ),
          );
        if (!isRunning(child)) return fail();
        child.once("exit", fail);
        child.on("message", (message) => {
          const from = message as From;
          if (isOfKind(from, kind)) resolve(from);
        });
      }),
    async end() {
      isExpected = true;
      await endChild(child);
      return child.signalCode !== "SIGKILL";
    },
  };
}

function isOfKind<From extends { readonly kind: string }, Kind extends string>(
  message: From,
  kind: Kind,
): message is Extract<From, { readonly kind: Kind }> {
  return message.kind === kind;
}

async function diedEarly(child: ChildProcess, file: string): Promise<never> {
  await once(child, "exit");
  throw new Error(`${file} did not start.`);
}
