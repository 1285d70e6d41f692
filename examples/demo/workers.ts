import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { builtOf, endChild, isRunning, startChild } from "../shared/child.ts";
import type { StandstillReport } from "./report-standstills.ts";

const REPORT_STANDSTILLS = builtOf(new URL("report-standstills.ts", import.meta.url).href);

/** One process of `workers/webhook-worker.ts`. */
export interface WorkerProcess {
  /** The worker's name. It is also the user agent, which identifies the worker to the downstream. */
  readonly name: string;
  readonly pid: number;
  readonly isRunning: boolean;
}

export interface Workers {
  readonly all: readonly WorkerProcess[];
  /** How many webhooks each worker holds at once. */
  readonly concurrency: number;
  /** How many workers ended although the demo did not end them. */
  readonly crashed: number;
  /** The longest time in the last second for which one of the worker processes was blocked, in ms. */
  readonly longestStandstillMs: () => number;
  /** Closes all workers. Jobs that they have not started go back to the queue. */
  end(): Promise<void>;
}

export type WorkerEnvironment = Readonly<Record<string, string>>;

/** Starts worker processes. Resolves when all of them have started. */
export async function startWorkers(count: number, env: WorkerEnvironment): Promise<Workers> {
  const children: ChildProcess[] = [];
  const stoodStillMs = new Map<ChildProcess, number>();
  let isEnding = false;
  let crashed = 0;

  function start(name: string): { readonly worker: WorkerProcess; readonly ready: Promise<void> } {
    const child = startChild("workers/webhook-worker.ts", {
      env: { ...env, SLUICE_USER_AGENT: name, LOG_LEVEL: "info" },
      nodeArgs: ["--import", REPORT_STANDSTILLS],
    });
    children.push(child);
    child.on("message", ({ longestMs }: StandstillReport) => stoodStillMs.set(child, longestMs));
    child.once("exit", () => {
      if (!isEnding) crashed += 1;
    });
    const worker = {
      name,
      pid: child.pid!,
      get isRunning() {
        return isRunning(child);
      },
    };
    return { worker, ready: untilStarted(child) };
  }

  async function end(): Promise<void> {
    isEnding = true;
    await Promise.all(children.map(endChild));
  }

  const started = Array.from({ length: count }, (_, index) => start(`worker ${index + 1}`));
  const workers = {
    all: started.map(({ worker }) => worker),
    concurrency: Number(env["SLUICE_CONCURRENCY"]),
    get crashed() {
      return crashed;
    },
    longestStandstillMs: () => Math.max(0, ...stoodStillMs.values()),
    end,
  };
  try {
    await Promise.all(started.map(({ ready }) => ready));
  } catch (error) {
    await end();
    throw error;
  }
  return workers;
}

async function untilStarted(child: ChildProcess): Promise<void> {
  let complaint = "";
  child.stderr!.on("data", (chunk: Buffer) => {
    complaint = (complaint + chunk.toString()).slice(-2_000);
  });
  const lines = createInterface({ input: child.stdout! });
  // A worker prints its first line when it has started. Later lines are read too, because a full pipe would block the
  // worker.
  const line = once(lines, "line");
  lines.on("line", () => undefined);
  const died = once(child, "close").then(() => {
    throw new Error(`A worker did not start. ${complaint.trim()}`);
  });
  died.catch(() => undefined);
  await Promise.race([line, died]);
}
