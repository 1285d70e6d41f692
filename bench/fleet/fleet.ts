import { fork, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import type { ReplicaSetup } from "../limiters/contender.ts";
import type { ContenderName } from "../limiters/contenders.ts";

const REPLICA = fileURLToPath(new URL("./replica.ts", import.meta.url));

/** The replicas, each in a separate process that is used for several runs. */
export interface Fleet {
  /** Connects this many replicas and waits until all are connected. */
  connect(replicas: number, contender: ContenderName, setup: ReplicaSetup): Promise<void>;
  start(): void;
  /** Starts counting the CPU time of the replicas. */
  count(): void;
  /** Ends the run. Resolves with the calls of each replica. */
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
      const connecting = taking.map((member) => {
        send(member, { kind: "connect", contender, setup });
        return answerOf(member, "connected");
      });
      // Waits for all replicas before it reports the first failure, so that none is stopped while it connects.
      await Promise.allSettled(connecting);
      await Promise.all(connecting);
    },
    start() {
      for (const member of taking) send(member, { kind: "start" });
    },
    count() {
      for (const member of taking) send(member, { kind: "count" });
    },
    async stop() {
      return Promise.all(
        taking.map(async (member) => {
          send(member, { kind: "stop" });
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

function send(member: ChildProcess, message: ToReplica): void {
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
      const answer = message as FromReplica;
      if (answer.kind === "failed") {
        reject(new Error(`a replica could not connect: ${answer.reason}`));
      } else {
        resolve(answer as Extract<FromReplica, { kind: Kind }>);
      }
    });
  });
}

/** A message to a replica. */
export type ToReplica =
  | { readonly kind: "connect"; readonly contender: ContenderName; readonly setup: ReplicaSetup }
  | { readonly kind: "start" }
  | { readonly kind: "count" }
  | { readonly kind: "stop" };

/** A reply of a replica. The messages `start` and `count` get no reply. */
export type FromReplica =
  | { readonly kind: "ready" }
  | { readonly kind: "connected" }
  /** The limiter threw while it connected. */
  | { readonly kind: "failed"; readonly reason: string }
  | { readonly kind: "stopped"; readonly taken: Taken };

/** The calls that one replica started in one run. */
export interface Taken {
  readonly arrivalsMs: Float64Array;
  /** The driver's notes on each call; empty if the driver makes none. */
  readonly notes: Float64Array;
  /** User and system time of the replica's process from `count` to `stop`. */
  readonly cpuUs: number;
}
