import { cpus } from "node:os";
import { setTimeout as pause } from "node:timers/promises";
import type { Redis } from "ioredis";
import { loadContender, type ContenderName } from "../limiters/contenders.ts";
import type { Fleet, Taken } from "./fleet.ts";
import { createMachineClock } from "./machine-clock.ts";
import { measure, type Traffic } from "./measure.ts";
import { watchRedisCost, type RedisCost } from "./redis-cost.ts";

/** The resources that all runs of a part share. */
export interface Bench {
  readonly redisUrl: string;
  readonly redis: Redis;
  readonly fleet: Fleet;
}

export interface Load {
  readonly contender: ContenderName;
  readonly cap: number;
  readonly replicas: number;
  readonly callers: number;
  /** The measured seconds, after the start-up. */
  readonly seconds: number;
  /** The seconds of the start-up, before the measured time. Defaults to 1. */
  readonly startUpSeconds?: number;
  /** Records only one of this many arrivals. Defaults to 1. */
  readonly every?: number;
  /** The downstream of limiters that make calls. Defaults to none. */
  readonly url?: string | undefined;
  /** The folder of the built package that runs. Defaults to this working tree. */
  readonly build?: string | undefined;
}

export interface Outcome extends Traffic {
  readonly cost: RedisCost;
  readonly seconds: number;
  /** CPU time of the replicas per call, for the calls after the start-up. */
  readonly cpuUs: number;
  /** How many cores other processes used in the measured time, such as `0.7`. */
  readonly otherCores: number;
}

/**
 * The jobs to store per second of a run: more than BullMQ completes on two cores, so that a backlog remains until the
 * end.
 */
const MOST_JOBS_PER_SECOND = 35_000;

/** The raw results of a run. */
export interface RawOutcome {
  readonly taken: readonly Taken[];
  readonly cost: RedisCost;
  /** CPU time of all processes of the machine in the measured time. */
  readonly machineUs: number;
  /** The start of the measured time, which includes `fromMs` but not `toMs`. */
  readonly fromMs: number;
  readonly toMs: number;
}

/** Runs one limiter under one cap, on an empty Redis. */
export async function runLoad(bench: Bench, load: Load): Promise<Outcome> {
  const { taken, cost, machineUs, fromMs, toMs } = await runRaw(bench, load);
  const arrivals = taken.map(({ arrivalsMs }) => arrivalsMs);
  const traffic = measure(arrivals, { cap: load.cap, every: load.every ?? 1, fromMs, toMs });
  const used = taken.reduce((sum, { cpuUs }) => sum + cpuUs, 0);
  const made = arrivals.reduce((sum, each) => sum + each.filter((ms) => ms >= fromMs).length, 0);
  const cpuUs = used / (made * (load.every ?? 1));
  const seconds = (toMs - fromMs) / 1_000;
  const otherCores = Math.max(0, machineUs - used - cost.cpuUs) / (seconds * 1e6);
  return { ...traffic, cost, seconds, cpuUs, otherCores };
}

function readMachineUs(): number {
  return cpus().reduce((sum, { times }) => {
    return sum + (times.user + times.nice + times.sys + times.irq) * 1_000;
  }, 0);
}

/** Does the same as `runLoad`, and returns the raw results, for a part that inspects each arrival itself. */
export async function runRaw({ redisUrl, redis, fleet }: Bench, load: Load): Promise<RawOutcome> {
  const {
    contender,
    cap,
    replicas,
    callers,
    seconds,
    startUpSeconds = 1,
    every = 1,
    url,
    build,
  } = load;
  const { preload } = await loadContender(contender);
  await redis.flushall();
  const jobsPerSecond = Math.min(cap * 1.5, MOST_JOBS_PER_SECOND);
  const jobs = Math.ceil(jobsPerSecond * (seconds + startUpSeconds));
  await preload?.({ redisUrl, build }, jobs);
  await fleet.connect(replicas, contender, { redisUrl, cap, callers, every, url, build });

  const nowMs = createMachineClock();
  fleet.start();
  await pause(startUpSeconds * 1_000);
  const costSince = await watchRedisCost(redis);
  const machineBeforeUs = readMachineUs();
  const fromMs = nowMs();
  fleet.count();
  await pause(seconds * 1_000);
  const toMs = nowMs();
  const machineUs = readMachineUs() - machineBeforeUs;
  const cost = await costSince();

  const taken = await fleet.stop();
  const started = taken.reduce((sum, { arrivalsMs }) => sum + arrivalsMs.length, 0);
  if (preload !== undefined && started >= jobs) {
    console.warn(
      `${contender}: all ${jobs} jobs were done before the end; the figures are too low.`,
    );
  }
  return { taken, cost, machineUs, fromMs, toMs };
}
