import { cpus } from "node:os";
import { createStandstills } from "./standstills.ts";

/** The load of the machine. On a busy machine, speed figures say nothing about Sluice. */
export interface MachineLoad {
  /** The share of the time for which all processors were idle: `0.4`. */
  readonly idleShare: number;
  /** How long this mostly idle process was blocked although a timer was due, in ms. */
  readonly stoodStillMs: number;
  readonly runMs: number;
}

const RING_EVERY_MS = 10;
const LEAST_IDLE_SHARE = 0.05;
const MOST_STANDSTILL_SHARE = 0.01;

/** True if the machine was too busy for speed figures to be conclusive. */
export function wasBusy({ idleShare, stoodStillMs, runMs }: MachineLoad): boolean {
  return idleShare < LEAST_IDLE_SHARE || stoodStillMs > MOST_STANDSTILL_SHARE * runMs;
}

/** Starts measuring the load of the machine. */
export function measureMachine(): { end(): MachineLoad } {
  const startMs = performance.now();
  const before = processorTimes();
  const standstills = createStandstills(RING_EVERY_MS);
  const timer = setInterval(standstills.ring, RING_EVERY_MS);
  timer.unref();
  return {
    end() {
      clearInterval(timer);
      const after = processorTimes();
      const allMs = after.allMs - before.allMs;
      return {
        idleShare: allMs === 0 ? 1 : (after.idleMs - before.idleMs) / allMs,
        stoodStillMs: standstills.totalMs(),
        runMs: performance.now() - startMs,
      };
    },
  };
}

function processorTimes(): { readonly allMs: number; readonly idleMs: number } {
  const times = cpus().map((cpu) => cpu.times);
  const all = times.flatMap((each) => Object.values(each));
  const sum = (values: readonly number[]): number => values.reduce((total, ms) => total + ms, 0);
  return { allMs: sum(all), idleMs: sum(times.map(({ idle }) => idle)) };
}
