import { Redis } from "ioredis";
import { afterAll, beforeAll, beforeEach, inject } from "vitest";
import type { Ordered, Queue } from "sluice";
import { waitUntil } from "../async/wait-until.ts";
import { children, type Child } from "../children/child.ts";
import { realSluices } from "../setup/real-sluice.ts";

/** What `processes/workers/ordered-worker.ts` is told. */
export interface OrderedWorkerSettings {
  readonly redis: string;
  readonly prefix: string;
  /** Not a function, which no message can carry. */
  readonly ordered: Ordered;
  readonly rate?: string;
  /** The rate of each key. */
  readonly keyRate?: string;
  readonly concurrency?: number;
}

/** The data of a job: what its handler does. */
export interface OrderedJob {
  readonly name: string;
  readonly takesMs?: number;
  /** How many of its runs fail, and after how long the next attempt comes. */
  readonly fails?: number;
  readonly retryMs?: number;
  /** Its handler ends once this was opened. */
  readonly until?: string;
}

/** What a handler did, in the order in which Redis was told. */
export interface Step {
  readonly key: string;
  readonly name: string;
  readonly attempt: number;
  readonly what: "begin" | "end";
  readonly pid: number;
}

/** A queue on a real Redis, and worker processes that tell there what they do. */
export function orderedWorkers() {
  const processes = children();
  const sluices = realSluices();
  let redis: Redis;
  let prefix: string;
  let started: Child[] = [];
  beforeAll(() => {
    redis = new Redis(inject("redisUrl"), { maxRetriesPerRequest: null });
  });
  beforeEach(() => {
    prefix = sluices.prefix();
    started = [];
  });
  afterAll(async () => {
    await redis.quit();
  });

  async function steps(key?: string): Promise<Step[]> {
    const lines = await redis.lrange(`${prefix}:log`, 0, -1);
    const all = lines.map((line) => JSON.parse(line) as Step);
    return all.filter((step) => key === undefined || step.key === key);
  }

  return {
    get redis() {
      return redis;
    },
    get prefix() {
      return prefix;
    },
    /** A producer's queue. */
    open(ordered: Ordered): Queue<OrderedJob> {
      const sluice = sluices.open();
      const bucket = sluice.bucket("downstream", { rate: "1000/s" });
      return sluice.queue<OrderedJob>("jobs", { bucket, ordered });
    },
    async start(
      count: number,
      ordered: Ordered,
      settings: Pick<OrderedWorkerSettings, "rate" | "keyRate" | "concurrency"> = {},
    ): Promise<void> {
      const told: OrderedWorkerSettings = {
        redis: inject("redisUrl"),
        prefix,
        ordered,
        ...settings,
      };
      const args = [JSON.stringify(told)];
      const these = Array.from({ length: count }, () =>
        processes.start("workers/ordered-worker.ts", args),
      );
      started.push(...these);
      await waitUntil(
        () => these.every(({ messages }) => messages[0] === "ready"),
        "all are at work",
      );
    },
    /** Ends the process that runs a job, without a word. */
    async kill(name: string): Promise<void> {
      const step = (await steps()).findLast((each) => each.name === name);
      started.find(({ pid }) => pid === step?.pid)!.signal("SIGKILL");
    },
    /** Has handlers end that wait for this. */
    release: (name: string) => redis.set(`${prefix}:${name}`, 1, "PX", 600_000),
    steps,
    /** What a key's handlers did, as `"a1 begin"`. */
    async story(key: string): Promise<string[]> {
      return (await steps(key)).map(({ name, attempt, what }) => `${name}${attempt} ${what}`);
    },
    async until(key: string, step: string): Promise<void> {
      await waitUntil(
        async () => (await this.story(key)).includes(step),
        `"${step}" of key "${key}"`,
      );
    },
  };
}

/** What handlers do that run one after another, once each. */
export function inTurn(...names: readonly string[]): string[] {
  return names.flatMap((name) => [`${name} begin`, `${name} end`]);
}
