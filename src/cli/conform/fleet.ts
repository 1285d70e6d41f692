import { fork, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import process from "node:process";
import type { FromReplica, ReplicaSetup, ToReplica } from "./replica.ts";

/** The replicas of one scenario, each in a separate process. */
interface Fleet extends AsyncDisposable {
  readonly size: number;
  send(replica: number, message: Exclude<ToReplica, { do: "open" }>): void;
  /** Kills a replica without a warning, as the kernel does when memory runs out. */
  kill(replica: number): Promise<void>;
}

/** Starts replicas, and resolves when each has opened its limiter. */
export async function startFleet(size: number, setup: Omit<ReplicaSetup, "index">): Promise<Fleet> {
  const children = Array.from({ length: size }, startReplica);
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

function startReplica(): ChildProcess {
  // The setup goes over IPC, because the URL of Redis may contain a password, which the list of processes would show.
  return fork(process.argv[1]!, ["conform", "--replica"], {
    stdio: ["ignore", "ignore", "ignore", "ipc"],
  });
}

async function kill(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = once(child, "exit");
  child.kill("SIGKILL");
  await exited;
}

/** Long enough for a busy machine. A limiter that takes longer would wait forever. */
const START_LIMIT_MS = 120_000;

function replyOf(child: ChildProcess, is: "ready" | "open"): Promise<void> {
  return new Promise((resolve, reject) => {
    const limit = setTimeout(() => {
      end(new Error(`A replica was not ${is} within ${START_LIMIT_MS / 1_000} s.`));
    }, START_LIMIT_MS);
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
