import { createMachineClock } from "../../../bench/fleet/machine-clock.ts";
import { createCleanup } from "../../../examples/shared/cleanup.ts";
import { startTcpProxy, type TcpProxy } from "../../support/servers/tcp-proxy.ts";
import { TARGETS, type Plan } from "../plan/plan.ts";
import type {
  ActorSettings,
  FromDownstream,
  FromProducer,
  FromReplica,
  FromTenants,
  FromWorker,
  StoredJobs,
} from "../processes/messages.ts";
import { openActor, type Actor } from "../processes/open-actor.ts";
import type { Call, Moment, Removal, Standstill } from "../records.ts";
import { startActor, type ActorProcess } from "./actors.ts";
import { openBuild } from "./earlier-build.ts";
import { startCrashingRedis, type CrashingRedis } from "./crashing-redis.ts";
import { startWire, type Wire } from "./wire.ts";

/** What the soak recorded while it ran. */
export interface Log {
  /** In order of arrival. */
  readonly calls: Call[];
  readonly clocks: Moment[];
  readonly confirmed: number[];
  /** What is known of the tenants' jobs. */
  readonly tenants: {
    readonly calls: Call[];
    readonly clocks: Moment[];
    readonly stored: StoredJobs[];
    readonly removals: Removal[];
  };
  /** The workers' standstills. */
  readonly standstills: Standstill[];
  /** Failures that no fault excuses. */
  readonly complaints: string[];
}

type WorkerProcess = ActorProcess<FromWorker>;

/** Everything in the soak: Redis behind its proxy, the downstream, and the processes that use Sluice. */
export interface Stage {
  readonly redis: CrashingRedis;
  readonly proxy: TcpProxy;
  readonly wire: Wire;
  readonly downstream: ActorProcess<FromDownstream>;
  readonly replicas: readonly ActorProcess<FromReplica>[];
  readonly producer: ActorProcess<FromProducer>;
  readonly tenantsDownstream: ActorProcess<FromDownstream>;
  readonly tenantsProducer: ActorProcess<FromTenants>;
  /** A killed worker is replaced by a new process. */
  readonly workers: WorkerProcess[];
  startWorker(target: number): Promise<WorkerProcess>;
  /** Sets the weight of the tenant whose weight changes, in all processes. */
  weigh(gold: number): void;
  /** Controls bucket and queue; bypasses the proxy. */
  readonly control: Actor;
  readonly log: Log;
  readonly nowMs: () => number;
  /** Ends everything that still runs. */
  [Symbol.asyncDispose](): Promise<void>;
}

/** The bucket's rate, in calls a second. */
export const PER_SECOND = 150;

/** Opens it; with a commit to be `beside`, one worker and the producer run the build of that one. */
export async function openStage({ burst }: Plan, beside?: string): Promise<Stage> {
  const cleanup = createCleanup();
  const log: Log = {
    calls: [],
    clocks: [],
    confirmed: [],
    tenants: { calls: [], clocks: [], stored: [], removals: [] },
    standstills: [],
    complaints: [],
  };
  let gold = 1;

  function onCrash(complaint: string): void {
    log.complaints.push(complaint);
    process.stderr.write(`${complaint}\n`);
  }

  async function start<From extends { readonly kind: string }>(
    file: string,
    options: {
      args?: readonly string[];
      root?: string | undefined;
      onMessage?: (message: From) => void;
    },
  ): Promise<ActorProcess<From>> {
    const actor = await startActor<From>(file, { ...options, onCrash });
    cleanup.add(async () => void (await actor.end()));
    return actor;
  }

  try {
    const earlier = beside === undefined ? undefined : await openBuild(beside, cleanup);
    const redis = await startCrashingRedis();
    cleanup.add(() => redis.stop());
    const proxy = await startTcpProxy(redis.port);
    cleanup.add(() => proxy.close());
    const wire = await startWire(proxy.port);
    cleanup.add(() => wire.close());
    const startDownstream = ({ calls, clocks }: Pick<Log, "calls" | "clocks">) =>
      start<FromDownstream>("downstream-process.ts", {
        onMessage(message) {
          if (message.kind !== "report") return;
          calls.push(...message.calls);
          clocks.push(message.clock);
        },
      });
    const downstream = await startDownstream(log);
    const tenantsDownstream = await startDownstream(log.tenants);
    const urls = { url: urlOf(downstream), tenantsUrl: urlOf(tenantsDownstream) };

    const common = { ...urls, perSecond: PER_SECOND, burst, gold } as const;
    const through = { ...common, redis: `redis://127.0.0.1:${wire.port}` };
    const argsOf = (settings: ActorSettings) => ({ args: [JSON.stringify(settings)] });
    async function startWorker(target: number): Promise<WorkerProcess> {
      const worker: WorkerProcess = await start<FromWorker>("worker-process.ts", {
        ...argsOf({ ...through, gold, onStoreDown: "refuse" }),
        root: target === 0 ? earlier : undefined,
        onMessage(message) {
          if (message.kind === "stood") log.standstills.push({ pid: worker.pid, ...message });
        },
      });
      return worker;
    }
    const startReplica = (_: unknown, index: number) =>
      start<FromReplica>(
        "replica-process.ts",
        argsOf({ ...through, onStoreDown: index === 0 ? "wait" : "refuse" }),
      );
    const each = { length: TARGETS };
    const [replicas, workers, producer, tenantsProducer] = await Promise.all([
      Promise.all(Array.from(each, startReplica)),
      Promise.all(Array.from(each, (_, target) => startWorker(target))),
      start<FromProducer>("producer-process.ts", {
        ...argsOf({ ...through, onStoreDown: "refuse" }),
        root: earlier,
        onMessage(message) {
          if (message.kind === "stored") log.confirmed.push(...message.jobs);
        },
      }),
      start<FromTenants>("tenants-process.ts", {
        ...argsOf({ ...through, onStoreDown: "refuse" }),
        onMessage(message) {
          if (message.kind === "stored") log.tenants.stored.push(...message.stored);
        },
      }),
    ]);
    const control = openActor({ ...common, redis: redis.url, onStoreDown: "wait" });
    cleanup.add(() => control.sluice.close());
    const nowMs = createMachineClock();
    const parts = {
      redis,
      proxy,
      wire,
      downstream,
      tenantsDownstream,
      replicas,
      workers,
      producer,
      tenantsProducer,
      control,
    };
    return {
      ...parts,
      startWorker,
      weigh(next) {
        gold = next;
        for (const each of [...workers, tenantsProducer]) each.send({ kind: "weigh", gold });
      },
      log,
      nowMs,
      [Symbol.asyncDispose]: () => cleanup[Symbol.asyncDispose](),
    };
  } catch (error) {
    await cleanup[Symbol.asyncDispose]();
    throw error;
  }
}

function urlOf({ first }: ActorProcess<FromDownstream>): string {
  return first.kind === "listening" ? first.url : "";
}
