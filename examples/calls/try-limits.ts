/**
 * Compares three limits on the same two simulated minutes before one of them is set: a loud tenant, and an API that
 * accepts fewer calls for half a minute. The simulator runs in virtual time and needs no Redis.
 */
import { simulate, type SimulateOptions } from "sluice/simulate";

const SECOND_MS = 1_000;

const load: Omit<SimulateOptions, "policy"> = {
  arrivals: {
    ratePerSecond: 8,
    durationMs: 120 * SECOND_MS,
    pattern: "bursts",
    keys: { loud: 8, quiet: 1, small: 1 },
  },
  replicas: 2,
  downstream: {
    limit: "12/s",
    latencyMs: { p50: 80, p99: 400 },
    changes: [
      { atMs: 40 * SECOND_MS, limit: "9/s" },
      { atMs: 70 * SECOND_MS, limit: "12/s" },
    ],
  },
};

const policies: Readonly<Record<string, SimulateOptions["policy"]>> = {
  "15/s": { rate: "15/s" },
  "11/s": { rate: "11/s" },
  "11/s, 8/s per tenant": { rate: "11/s", perKey: { rate: "8/s" } },
};

for (const [name, policy] of Object.entries(policies)) {
  const { calls, byKey, downstream } = simulate({ ...load, policy });
  const waits = byKey
    .map(({ key, p99Ms }) => `${String(key)} ${(p99Ms / SECOND_MS).toFixed(1)} s`)
    .toSorted();
  console.log(`${name}: the API refuses ${downstream.refusals} of ${calls} calls.`);
  console.log(`  99 % of the calls wait up to: ${waits.join(", ")}`);
}
