import { fork } from "node:child_process";
import { fileURLToPath } from "node:url";
import type { Bench } from "../fleet/run-load.ts";
import { formatNumber } from "../promises.ts";
import type { Table } from "../table.ts";
import type { MemoryReport } from "./memory-probe.ts";

const PROBE = fileURLToPath(new URL("./memory-probe.ts", import.meta.url));

/**
 * Measures the memory of 100,000 waiting callers in one process, checks that they start in order, and measures the
 * memory of a bucket.
 */
export async function measureMemory({ redis, redisUrl }: Bench): Promise<Table[]> {
  await redis.flushall();
  const { bytesPerCaller, startedInOrder, bytesPerBucket } = await probe(redisUrl);
  return [
    {
      title: "100,000 callers waiting in one process",
      rows: [
        {
          figure: "bytes a caller",
          values: { sluice: formatNumber(bytesPerCaller, 0) },
        },
        {
          figure: "they start in the order in which they came",
          promise: "yes",
          isKept: startedInOrder,
          values: { sluice: startedInOrder ? "yes" : "no" },
        },
      ],
    },
    {
      title: "1,000 buckets in one process",
      rows: [{ figure: "bytes a bucket", values: { sluice: formatNumber(bytesPerBucket, 0) } }],
    },
  ];
}

async function probe(redisUrl: string): Promise<MemoryReport> {
  const child = fork(PROBE, [redisUrl], { execArgv: [...process.execArgv, "--expose-gc"] });
  return new Promise((resolve, reject) => {
    child.once("message", (report) => resolve(report as MemoryReport));
    child.once("exit", () => reject(new Error("the memory probe ended without a report")));
  });
}
