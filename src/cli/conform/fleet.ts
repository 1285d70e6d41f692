import { fork, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import process from "node:process";
import type { FromReplica, ReplicaSetup, ToReplica } from "./replica.ts";

/** Long enough for a busy machine. A limiter that takes longer would wait forever. */
const START_LIMIT_MS = 120_000;

/** The replicas of one scenario, each in a separate process. */
interface Fleet extends AsyncDisposable {
  readonly size: number;
  send(replica: number, message: Exclude<ToReplica, { do: "open" }>): void;
  /** Kills a replica without a warning, as the kernel does when memory runs out. */
  kill(replica: number): Promise<void>;
}

interface FleetOptions {
  /** The script that runs `conform --replica`. Defaults to that of this process. */
  readonly script?: string;
  /** How long a replica may take to start, and to open its limiter. Defaults to 120,000. */
  readonly startLimitMs?: number;
}

/** Starts replicas, and resolves when each has opened its limiter. */
export async function startFleet(
  size: number,
  setup: Omit<ReplicaSetup, "index">,
  { script = process.argv[1]!, startLimitMs = START_LIMIT_MS }: FleetOptions = {},
): Promise<Fleet> {
  const children = Array.from({ length: size }, () => startReplica(script));
  const replyOf = (child: ChildProcess, is: "ready" | "open"): Promise<void> =>
    awaitReply(child, is, startLimitMs);
  const fleet: Fleet = {
    size,
    send(replica, message) {
      // A replica that has ended makes no calls, and the log of the downstream shows that.
      if (children[replica]!.connected) children[replica]!.send(message);
    },
    kill: (replica) => kill(children[replica]!),
    async [Symbol.asyncDispose]() {
      await Promise.all(children.map(kill));
    },
  };
  try {
    await Promise.all(children.map((child) => replyOf(child, "ready")));
    const opened = children.map((child, index) => {
      const reply = replyOf(child, "open");
      child.send({ do: "open", setup: { ...setup, index } } satisfies ToReplica);
      return reply;
    });
    // Wait for all before reporting a failure, so that no replica ends while it opens.
    await Promise.allSettled(opened);
    await Promise.all(opened);
    return fleet;
  } catch (error) {
    await fleet[Symbol.asyncDispose]();
    throw error;
  }
}

function startReplica(script: string): ChildProcess {
  // The setup goes over IPC, because the URL of Redis may contain a password, which the list of processes would show.
  return fork(script, ["conform", "--replica"], {
    stdio: ["ignore", "ignore", "ignore", "ipc"],
  });
}

async function kill(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = once(child, "exit");
  child.kill("SIGKILL");
  await exited;
}

function awaitReply(child: ChildProcess, is: "ready" | "open", limitMs: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const limit = setTimeout(() => {
      end(new Error(`A replica was not ${is} within ${limitMs / 1_000} s.`));
    }, limitMs);
    const onExit = (): void => end(new Error(`A replica ended before it was ${is}.`));
    const onMessage = (message: unknown): void => {
      const reply = message as FromReplica;
      if (reply.is !== "failed") return end();
      end(new Error(`A replica could not start: ${reply.reason}`));
    };
    function end(error?: Error): void {
      clearTimeout(limit);
      child.off("exit", onExit).off("message", onMessage);
      if (error === undefined) resolve();
      else reject(error);
    }
    child.once("exit", onExit).once("message", onMessage);
  });
}
