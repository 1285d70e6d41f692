/** Runs the same programs with Bottleneck and with its drop-in, in several processes that share a Redis. */
import { randomUUID } from "node:crypto";
import { describe, expect, inject, it } from "vitest";
import type Bottleneck from "sluice/bottleneck";
import { waitUntil } from "../../support/async/wait-until.ts";
import { children } from "../../support/children/child.ts";
import type {
  MemberConfig,
  MemberReply,
  MemberRequest,
} from "../../support/processes/limiter-member.ts";

type Library = MemberConfig["library"];

/** A process with a limiter or a group. */
interface Member {
  /** Calls a method of the limiter, or of the limiter of a key, and returns its result. */
  call(method: string, ...args: readonly unknown[]): Promise<unknown>;
  of(key: string): Pick<Member, "call">;
  /** Waits until a method returns a value, and returns the value. */
  until(expected: unknown, method: string, ...args: readonly unknown[]): Promise<unknown>;
  kill(): Promise<void>;
}

type Start = (options?: Bottleneck.ConstructorOptions) => Promise<Member>;

interface Cluster {
  readonly limiter: Start;
  readonly group: Start;
}

const processes = children();

function openCluster(library: Library): Cluster {
  const { hostname: host, port } = new URL(inject("redisUrl"));
  const common = {
    id: `t${randomUUID()}`,
    datastore: "ioredis",
    clientOptions: { host, port: Number(port) },
    heartbeatInterval: 100,
    clientTimeout: 1_000,
  } as const;
  const open =
    (kind: MemberConfig["kind"]): Start =>
    async (options = {}) => {
      const config: MemberConfig = { library, kind, options: { ...common, ...options } };
      const child = processes.start("limiter-member.ts", [JSON.stringify(config)]);
      let count = 0;
      const replyTo = async (number: number): Promise<unknown> => {
        const found = (): MemberReply | undefined =>
          (child.messages as MemberReply[]).find((reply) => reply.number === number);
        await waitUntil(() => found() !== undefined, "the process replied");
        return found()!.value;
      };
      const caller =
        (key?: string) =>
        async (method: string, ...args: readonly unknown[]) => {
          count += 1;
          const request: MemberRequest = { number: count, method, args, key };
          child.send(JSON.stringify(request));
          return replyTo(request.number);
        };
      await replyTo(0);
      const call = caller();
      return {
        call,
        of: (key) => ({ call: caller(key) }),
        async until(expected, method, ...args) {
          const text = JSON.stringify(expected);
          let value: unknown;
          await waitUntil(
            async () => JSON.stringify((value = await call(method, ...args))) === text,
            `${method} returns ${text}`,
          );
          return value;
        },
        async kill() {
          child.signal("SIGKILL");
          await child.ended;
        },
      };
    };
  return { limiter: open("limiter"), group: open("group") };
}

/** What each of several processes sees. */
async function all(
  members: readonly Member[],
  method: string,
  ...args: readonly unknown[]
): Promise<unknown[]> {
  return Promise.all(members.map((member) => member.call(method, ...args)));
}

const PROGRAMS: Readonly<Record<string, (cluster: Cluster) => Promise<unknown>>> = {
  async "counts the running and the done jobs of all processes"({ limiter }) {
    const [a, b] = [await limiter(), await limiter()];
    await a.call("start", "heavy", 2);
    await a.call("start", "light");
    await b.call("start", "other");
    await a.until(4, "running");
    const during = [await all([a, b], "running"), await all([a, b], "done")];
    await a.call("end", "heavy");
    await b.until(2, "done");
    const between = await all([a, b], "running");
    await a.call("end", "light");
    await b.call("end", "other");
    await a.until(4, "done");
    const late = await limiter();
    const after = [await all([a, b, late], "done"), await all([a, b, late], "running")];
    return { during, between, after, counts: await all([a, b], "counts") };
  },

  async "counts the queued jobs of all processes"({ limiter }) {
    const [a, b, c] = [
      await limiter({ maxConcurrent: 1 }),
      await limiter({ maxConcurrent: 1 }),
      await limiter({ maxConcurrent: 1 }),
    ];
    await a.call("start", "a1");
    await b.until(1, "running");
    await a.call("start", "a2");
    for (const name of ["b1", "b2"]) await b.call("start", name);
    await c.until(3, "clusterQueued");
    const during = [
      await all([a, b, c], "clusterQueued"),
      await all([a, b, c], "queued"),
      await all([a, b, c], "empty"),
      await all([a, b, c], "running"),
      await all([a, b, c], "check"),
    ];
    await waitUntil(async () => {
      await all([a, b], "end");
      return (await c.call("done")) === 4;
    }, "all jobs are done");
    return { during, after: await all([a, c], "clusterQueued") };
  },

  async "triggers idle only when no process runs a job"({ limiter }) {
    const [a, b] = [await limiter(), await limiter()];
    await a.call("start", "first");
    await b.call("start", "last");
    await a.until(2, "running");
    const started = await all([a, b], "events");
    await a.call("end", "first");
    await b.until(1, "done");
    const between = await all([a, b], "events");
    await b.call("end", "last");
    await a.until(2, "done");
    return { started, between, after: await all([a, b], "events") };
  },

  async "keeps the settings of the first process, and those of the latest update"({ limiter }) {
    const a = await limiter({ maxConcurrent: 1 });
    const b = await limiter({ maxConcurrent: 3, highWater: 0 });
    await a.call("start", "a1");
    await b.until(1, "running");
    for (const name of ["b1", "b2"]) await b.call("start", name);
    await a.until(2, "clusterQueued");
    const first = [await b.call("check"), await b.call("running")];
    await a.call("updateSettings", { maxConcurrent: 2 });
    await a.until(2, "running");
    const updated = await b.call("counts");
    const c = await limiter({ maxConcurrent: 9 });
    await c.call("start", "c1");
    await a.until(2, "clusterQueued");
    const late = [await c.call("check"), await c.call("running")];
    await c.call("updateSettings", { maxConcurrent: null });
    await a.until(4, "running");
    return { first, updated, late, last: await all([a, b, c], "check") };
  },

  async "shares the reservoir"({ limiter }) {
    const a = await limiter({ reservoir: 2 });
    const b = await limiter({ reservoir: 7 });
    const before = await all([a, b], "currentReservoir");
    const incremented = await b.call("incrementReservoir", 3);
    await a.call("start", "a1", 4);
    await b.until(1, "currentReservoir");
    // "depleted" depends on a request of the first process.
    await a.until(1, "currentReservoir");
    await b.call("start", "b1");
    await a.until(0, "currentReservoir");
    await b.call("start", "b2");
    await a.until(1, "clusterQueued");
    const events = await all([a, b], "events");
    const late = await limiter({ reservoir: 5 });
    const spent = await all([a, b, late], "currentReservoir");
    await a.call("incrementReservoir", 2);
    await b.until(0, "queued");
    const after = await all([a, b, late], "currentReservoir");
    await a.call("updateSettings", { reservoir: 8 });
    return {
      before,
      incremented,
      events,
      spent,
      after,
      set: await all([a, b], "currentReservoir"),
    };
  },

  async "goes on in the other processes when one disconnects"({ limiter }) {
    const [a, b] = [await limiter({ maxConcurrent: 1 }), await limiter({ maxConcurrent: 1 })];
    await a.call("start", "a1");
    await b.until(1, "running");
    await b.call("start", "b1");
    await a.until(1, "clusterQueued");
    await a.call("end", "a1");
    await b.until({ RECEIVED: 0, QUEUED: 0, RUNNING: 0, EXECUTING: 1 }, "counts");
    await a.call("disconnect");
    await b.call("start", "b2");
    await b.until(1, "clusterQueued");
    await b.call("end", "b1");
    await b.until(2, "done");
    return [await b.call("running"), await b.call("queued")];
  },

  async "blocks the jobs of all processes"({ limiter }) {
    const options = { maxConcurrent: 1, highWater: 1, strategy: 3, penalty: 600_000 } as const;
    const [a, b] = [await limiter(options), await limiter(options)];
    await a.call("start", "a1");
    await b.until(1, "running");
    await a.call("start", "a2");
    await b.call("start", "b1");
    await a.until(2, "clusterQueued");
    await b.call("start", "b2");
    await a.until(0, "queued");
    return [
      await all([a, b], "clusterQueued"),
      await all([a, b], "queued"),
      (await all([a, b], "events")).map((events) =>
        (events as string[]).filter((event) => event === "dropped"),
      ),
    ];
  },

  async "forgets the queue of a process that is killed, but not what it did"({ limiter }) {
    const [a, b] = [await limiter({ maxConcurrent: 2 }), await limiter({ maxConcurrent: 2 })];
    await a.call("start", "a1");
    await a.call("start", "a2");
    await b.until(2, "running");
    await a.call("end", "a1");
    await b.until(1, "done");
    await b.call("start", "b1");
    await a.until(2, "running");
    for (const name of ["a3", "a4"]) await a.call("start", name);
    await b.until(2, "clusterQueued");
    await a.kill();
    await b.until(0, "clusterQueued");
    return [await b.call("done"), await b.call("queued"), await b.call("counts")];
  },

  async "knows the keys of a group in all processes"({ group }) {
    const [a, b] = [await group({ maxConcurrent: 1 }), await group({ maxConcurrent: 1 })];
    await a.of("x").call("ready");
    await a.of("y").call("start", "job");
    await b.of("z").call("ready");
    await a.of("y").call("end", "job");
    const keys = async (member: Member): Promise<unknown> =>
      ((await member.call("clusterKeys")) as string[]).toSorted();
    await waitUntil(async () => ((await keys(b)) as string[]).length === 3, "all keys are known");
    const before = [await keys(a), await keys(b), await all([a, b], "keys")];
    const deleted = [
      await b.call("deleteKey", "x"),
      await b.call("deleteKey", "z"),
      await b.call("deleteKey", "none"),
    ];
    return { before, deleted, after: await keys(b), own: await all([a, b], "keys") };
  },

  async "deletes the unused limiters of a group in all processes"({ group }) {
    const [a, b] = [await group({ timeout: 1_000 }), await group({ timeout: 1_000 })];
    await a.of("used").call("start", "job");
    await b.of("used").call("ready");
    await a.of("unused").call("ready");
    await a.of("used").call("end", "job");
    await a.until([], "keys");
    await b.until([], "keys");
    return all([a, b], "clusterKeys");
  },
};

describe("limiters of several processes", () => {
  for (const [name, program] of Object.entries(PROGRAMS)) {
    it(`the program: ${name}`, async () => {
      const [expected, actual] = await Promise.all([
        program(openCluster("bottleneck")),
        program(openCluster("sluice")),
      ]);

      expect(actual).toEqual(expected);
    });
  }
});
