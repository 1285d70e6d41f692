import { waitUntil } from "../../support/async/wait-until.ts";
import type { Answer } from "../records.ts";
import type { Stage } from "../stage/stage.ts";
import { removals } from "../tenants/removals.ts";
import { MOST_WEIGHT } from "../tenants/tenants.ts";
import type { FaultName } from "./fault-kinds.ts";
import type { PlannedFault } from "./plan.ts";

/** Ends a fault. */
type End = () => Promise<unknown>;

/** Begins a fault; resolves when it is in effect. Faults that change the rate are in `run-plan.ts`. */
type Strike = (stage: Stage, fault: PlannedFault) => Promise<End>;

const FLUSH_EVERY_MS = 20;
const KILL_EVERY_MS = 200;

export const STRIKES: Readonly<Record<Exclude<FaultName, RateFault>, Strike>> = {
  async "worker killed"(stage, { target }) {
    stage.workers[target]!.signal("SIGKILL");
    return async () => (stage.workers[target] = await stage.startWorker(target));
  },
  async "worker closed"(stage, { target }) {
    await close(stage, [target]);
    return async () => (stage.workers[target] = await stage.startWorker(target));
  },
  async "all workers closed"(stage) {
    const all = [...stage.workers.keys()];
    await close(stage, all);
    return () => startAll(stage);
  },
  async "all workers killed"(stage) {
    for (const worker of stage.workers) worker.signal("SIGKILL");
    return () => startAll(stage);
  },
  ...removals,
  async "weights changed"(stage) {
    stage.weigh(MOST_WEIGHT);
    return async () => stage.weigh(1);
  },
  "worker stopped": async ({ workers }, { target }) => stopped(workers[target]!),
  "replica stopped": async ({ replicas }, { target }) => stopped(replicas[target]!),
  async "cut before a request"({ proxy }) {
    proxy.set("stall");
    return () => cutOnceKept({ proxy });
  },
  async "cut after a request"({ proxy }) {
    proxy.set("lose replies");
    return () => cutOnceKept({ proxy });
  },
  async "wire stalled"({ proxy }) {
    proxy.set("stall");
    return async () => cut({ proxy });
  },
  async "half-open"({ wire }) {
    wire.abandon();
    return async () => wire.find();
  },
  async "replies reset"({ proxy }) {
    proxy.set("reset");
    return async () => proxy.set("pass");
  },
  async "bytes sliced"({ wire }) {
    wire.set("slice");
    return async () => wire.set("pass");
  },
  async latency({ wire }) {
    wire.set("delay");
    return async () => wire.set("pass");
  },
  async "Redis restarted"({ redis }) {
    await redis.kill();
    return () => redis.start();
  },
  "SCRIPT FLUSH": async ({ redis: { operator } }) =>
    repeated(FLUSH_EVERY_MS, () => operator.script("FLUSH")),
  "CLIENT KILL": async ({ redis: { operator } }) =>
    repeated(KILL_EVERY_MS, async () => {
      for (const type of ["normal", "pubsub"] as const) {
        await operator.client("KILL", "TYPE", type, "SKIPME", "yes");
      }
    }),
  async READONLY({ redis: { operator } }) {
    await operator.replicaof("127.0.0.1", 1);
    return () => operator.replicaof("NO", "ONE");
  },
  async "memory full"({ redis: { operator } }) {
    await operator.config("SET", "maxmemory", "1");
    return () => operator.config("SET", "maxmemory", "0");
  },
  "429 storm": (stage) => answering(stage, "refused"),
  "downstream hangs": (stage) => answering(stage, "hung"),
  "downstream drips": (stage) => answering(stage, "dripped"),
  "downstream resets": (stage) => answering(stage, "reset"),
};

export type RateFault = "rate changed" | "bucket paused";

export function isRateFault(name: FaultName): name is RateFault {
  return name === "rate changed" || name === "bucket paused";
}

async function stopped(process: { signal(name: NodeJS.Signals): void }): Promise<End> {
  process.signal("SIGSTOP");
  return async () => process.signal("SIGCONT");
}

/** An orderly end, as in a deploy. */
async function close({ workers, log }: Stage, targets: readonly number[]): Promise<void> {
  const ended = await Promise.all(targets.map((target) => workers[target]!.end()));
  if (ended.includes(false)) log.complaints.push("a worker did not close");
}

async function startAll(stage: Stage): Promise<void> {
  const started = await Promise.all(stage.workers.map((_, target) => stage.startWorker(target)));
  stage.workers.splice(0, started.length, ...started);
}

function cut({ proxy }: Pick<Stage, "proxy">): void {
  proxy.set("pass");
  proxy.cut();
}

async function cutOnceKept({ proxy }: Pick<Stage, "proxy">): Promise<void> {
  await waitUntil(() => proxy.kept > 0, "a request or reply is held");
  cut({ proxy });
}

async function repeated(everyMs: number, strike: () => Promise<unknown>): Promise<End> {
  let underWay = strike();
  const timer = setInterval(() => (underWay = underWay.then(strike)), everyMs);
  return () => {
    clearInterval(timer);
    return underWay;
  };
}

async function answering({ downstream }: Stage, as: Answer): Promise<End> {
  async function set(answer: Answer): Promise<void> {
    const confirmed = downstream.next("answering");
    downstream.send({ kind: "answer", as: answer });
    await confirmed;
  }
  await set(as);
  return () => set("ok");
}
