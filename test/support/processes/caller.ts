/** A replica that calls a downstream through a bucket that listens to its answers. */
import { createSluice, type BucketOptions } from "sluice";

/** What such a process is told, as JSON. */
export interface CallerConfig {
  readonly redis: string;
  readonly prefix: string;
  readonly bucket: BucketOptions;
  readonly url: string;
  readonly calls: number;
}

const config = JSON.parse(process.argv[2] ?? "{}") as CallerConfig;
const { redis, prefix } = config;
const sluice = createSluice({ redis, prefix, storeTimeoutMs: 30_000 });
const bucket = sluice.bucket("downstream", config.bucket);

const call = bucket.throttled(async () => {
  const response = await fetch(config.url, { method: "POST" });
  await response.arrayBuffer();
  return response;
});

process.send?.("ready");
await new Promise<void>((resolve) => process.once("message", () => resolve()));
await Promise.all(Array.from({ length: config.calls }, () => call()));
await sluice.close();
process.disconnect?.();
