/** A replica that makes calls at given times, and tells the downstream when each was made and when its slot was. */
import { createSluice, type BucketOptions, type Priority } from "sluice";

export interface TimedCallerSettings {
  readonly redis: string;
  readonly prefix: string;
  readonly url: string;
  readonly policy: BucketOptions;
  readonly calls: readonly {
    readonly atMs: number;
    readonly key: string;
    readonly priority: Priority;
  }[];
}

const { redis, prefix, url, policy, calls } = JSON.parse(process.argv[2]!) as TimedCallerSettings;
const replica = process.argv[3]!;
const sluice = createSluice({ redis, prefix, storeTimeoutMs: 30_000 });
const bucket = sluice.bucket("downstream", policy);

async function call({ atMs, key, priority }: (typeof calls)[number]): Promise<void> {
  const dueMs = performance.now() + atMs;
  await new Promise((resolve) => setTimeout(resolve, atMs));
  const calledMs = Date.now();
  const lateMs = performance.now() - dueMs;
  const slot = await bucket.draw({ key, priority });
  const headers = {
    "x-replica": replica,
    "x-key": key,
    "x-priority": priority,
    "x-called-ms": String(calledMs),
    "x-late-ms": String(lateMs),
    "x-slot-ms": String(slot.atMs),
  };
  const response = await fetch(url, { method: "POST", headers });
  await response.arrayBuffer();
  slot.release();
}

process.send?.("ready");
await new Promise<void>((resolve) => process.once("message", () => resolve()));
await Promise.all(calls.map(call));
await sluice.close();
process.disconnect?.();
