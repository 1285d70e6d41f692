import type { Redis } from "ioredis";

/** The cost of one run for the Redis server. */
export interface RedisCost {
  /** User and system time of the whole server, including idle time. */
  readonly cpuUs: number;
  /** The part of `cpuUs` in the thread that executes commands; NaN if the server does not report it (before 6.2). */
  readonly mainThreadUs: number;
  /** The time in scripts, as the server counts it. */
  readonly scriptUs: number;
  readonly scripts: number;
  /** All commands, including those that scripts ran, but not the benchmark's own queries. */
  readonly commands: number;
  /** The 99th percentile of the duration of a script call; NaN if the server does not report it (before 7.0). */
  readonly scriptP99Us: number;
}

const OWN_COMMANDS = new Set(["info", "config|resetstat"]);

/** Starts counting. Resolves with a function that returns the cost since then. */
export async function watchRedisCost(redis: Redis): Promise<() => Promise<RedisCost>> {
  await redis.config("RESETSTAT");
  const start = await readCpu(redis);

  return async () => {
    const end = await readCpu(redis);
    const commands = await redis.info("commandstats");
    const latencies = await redis.info("latencystats");
    return {
      cpuUs: end.allUs - start.allUs,
      mainThreadUs: end.mainThreadUs - start.mainThreadUs,
      scriptUs: numberIn(commands, /^cmdstat_evalsha:.*\busec=(\d+)/m) ?? 0,
      scripts: numberIn(commands, /^cmdstat_evalsha:calls=(\d+)/m) ?? 0,
      commands: countCommands(commands),
      scriptP99Us: numberIn(latencies, /^latency_percentiles_usec_evalsha:.*p99=([\d.]+)/m) ?? NaN,
    };
  };
}

function countCommands(stats: string): number {
  let count = 0;
  for (const [, name, calls] of stats.matchAll(/^cmdstat_([^:]+):calls=(\d+)/gm)) {
    if (!OWN_COMMANDS.has(name!)) count += Number(calls);
  }
  return count;
}

/** Returns the CPU time of the server since it started. */
export async function redisCpuUs(redis: Redis): Promise<number> {
  return (await readCpu(redis)).allUs;
}

async function readCpu(
  redis: Redis,
): Promise<{ readonly allUs: number; readonly mainThreadUs: number }> {
  const info = await redis.info("cpu");
  const user = numberIn(info, /^used_cpu_user:([\d.]+)/m) ?? NaN;
  const system = numberIn(info, /^used_cpu_sys:([\d.]+)/m) ?? NaN;
  const ownUser = numberIn(info, /^used_cpu_user_main_thread:([\d.]+)/m) ?? NaN;
  const ownSystem = numberIn(info, /^used_cpu_sys_main_thread:([\d.]+)/m) ?? NaN;
  return { allUs: (user + system) * 1e6, mainThreadUs: (ownUser + ownSystem) * 1e6 };
}

function numberIn(text: string, pattern: RegExp): number | undefined {
  const found = pattern.exec(text)?.[1];
  return found === undefined ? undefined : Number(found);
}

/** Reads how many bytes the server uses for its data. */
export async function usedMemory(redis: Redis): Promise<number> {
  return Number(/^used_memory:(\d+)/m.exec(await redis.info("memory"))![1]);
}
