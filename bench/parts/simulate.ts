import process from "node:process";
import { simulate, type GeneratedArrivals, type SimulateOptions } from "sluice/simulate";
import type { Bench } from "../fleet/run-load.ts";
import type { Flags } from "../flags.ts";
import { formatNumber } from "../promises.ts";
import type { Row, Table } from "../table.ts";

interface Load {
  readonly title: string;
  readonly policy: SimulateOptions["policy"];
  readonly arrivals: Omit<GeneratedArrivals, "durationMs">;
}

const LOADS: readonly Load[] = [
  {
    title: "150/s, bursts of 116 calls a second",
    policy: { rate: "150/s" },
    arrivals: { ratePerSecond: 116, pattern: "bursts" },
  },
  {
    title: "500/s, 550 calls a second",
    policy: { rate: "500/s" },
    arrivals: { ratePerSecond: 550 },
  },
  {
    title: "150/s, bursts of 116 calls a second, 20 keys take turns",
    policy: { rate: "150/s", fair: true },
    arrivals: { ratePerSecond: 116, pattern: "bursts", keys: 20 },
  },
];
const REPLICAS = 4;

/** Measures the CPU time of simulations, with the time that V8 needs to compile the code. */
export async function measureSimulate(_bench: Bench, { effort }: Flags): Promise<Table[]> {
  return LOADS.map(({ title, policy, arrivals }) => {
    const durationMs = (effort.simulated / arrivals.ratePerSecond) * 1_000;
    const before = process.cpuUsage();
    const { calls, draws } = simulate({
      policy,
      arrivals: { ...arrivals, durationMs },
      replicas: REPLICAS,
    });
    const { user, system } = process.cpuUsage(before);
    const cpuUs = (user + system) / calls;
    const cpu: Row = {
      figure: "CPU a call, µs",
      values: { sluice: formatNumber(cpuUs, 1) },
    };
    const asked: Row = {
      figure: "draws a call",
      values: { sluice: formatNumber(draws / calls, 2) },
    };
    return { title: `A simulation with ${REPLICAS} replicas: ${title}`, rows: [cpu, asked] };
  });
}
