import { fork, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import type { ReplicaSetup } from "../limiters/contender.ts";
import type { ContenderName } from "../limiters/contenders.ts";

const REPLICA = fileURLToPath(new URL("./replica.ts", import.meta.url));

/** Replicas, each a process of its own; they are used again from run to run. */
export interface Fleet {
  /** Has this many replicas connect, and waits until all have. */
  connect(replicas: number, contender: ContenderName, setup: ReplicaSetup): Promise<void>;
  start(): void;
  /** Ends the run; resolves with what left through each replica. */
  stop(): Promise<Taken[]>;
  end(): Promise<void>;
}

export function createFleet(): Fleet {
  const members: ChildProcess[] = [];
  let taking: ChildProcess[] = [];

  return {
    async connect(replicas, contender, setup) {
      const added = Array.from({ length: Math.max(0, replicas - members.length) }, addReplica);
      members.push(...added);
      await Promise.all(added.map((member) => answerOf(member, "ready")));
      taking = members.slice(0, replicas);
      await Promise.all(
        taking.map((member) => {
          tell(member, { kind: "connect", contender, setup });
          return answerOf(member, "connected");
        }),
      );
    },
    start() {
      for (const member of taking) tell(member, { kind: "start" });
    },
    async stop() {
      return Promise.all(
        taking.map(async (member) => {
          tell(member, { kind: "stop" });
          return (await answerOf(member, "stopped")).taken;
        }),
      );
    },
    async end() {
      const ended = members.map((member) => once(member, "exit"));
      for (const member of members) member.disconnect();
      await Promise.all(ended);
    },
  };
}

function addReplica(): ChildProcess {
  return fork(REPLICA, { serialization: "advanced" });
}

function tell(member: ChildProcess, message: ToReplica): void {
  member.send(message);
}

async function answerOf<Kind extends FromReplica["kind"]>(
  member: ChildProcess,
  kind: Kind,
): Promise<Extract<FromReplica, { kind: Kind }>> {
  return new Promise((resolve, reject) => {
    const onExit = (): void => reject(new Error(`a replica ended before it was ${kind}`));
    member.once("exit", onExit);
    member.once("message", (message) => {
      member.off("exit", onExit);
      resolve(message as Extract<FromReplica, { kind: Kind }>);
    });
  });
}

/** What the benchmark tells a replica. */
export type ToReplica =
  | { readonly kind: "connect"; readonly contender: ContenderName; readonly setup: ReplicaSetup }
  | { readonly kind: "start" }
  | { readonly kind: "stop" };

/** What a replica answers; a start is not answered. */
export type FromReplica =
  | { readonly kind: "ready" }
  | { readonly kind: "connected" }
  | { readonly kind: "stopped"; readonly taken: Taken };

/** What left through one replica in one run. */
export interface Taken {
  readonly arrivalsMs: Float64Array;
  /** What the driver wrote down of each; empty where it writes nothing. */
  readonly notes: Float64Array;
}
