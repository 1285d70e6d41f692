/** A replica that sends requests through a pool. It reports how many of them failed. */
import { createSluice, type PoolMember } from "sluice";

/** What such a process is given, as JSON. */
export interface PoolCallerConfig {
  readonly redis: string;
  readonly prefix: string;
  readonly members: Readonly<Record<string, PoolMember>>;
  readonly calls: number;
}

const config = JSON.parse(process.argv[2] ?? "{}") as PoolCallerConfig;
const { redis, prefix, members } = config;
const sluice = createSluice({ redis, prefix, storeTimeoutMs: 30_000 });
const pool = sluice.pool("accounts", { members });
let failed = 0;

async function call(): Promise<void> {
  try {
    const response = await pool.fetch("/v1/chat", { method: "POST", redirect: "error" });
    await response.arrayBuffer();
  } catch {
    failed += 1;
  }
}

process.send?.("ready");
await new Promise<void>((resolve) => process.once("message", () => resolve()));
await Promise.all(Array.from({ length: config.calls }, call));
process.send?.(failed);
await sluice.close();
process.disconnect?.();
