/** A worker whose handler calls a downstream, and fails if that does not answer well. */
import { createSluice, type BucketOptions, type WorkerOptions } from "sluice";

export interface CallingWorkerSettings {
  readonly redis: string;
  readonly prefix: string;
  readonly policy: BucketOptions;
  readonly options?: WorkerOptions;
}

const settings = JSON.parse(process.argv[2]!) as CallingWorkerSettings;
const { redis, prefix, policy, options } = settings;
const logger = {
  warn: (_facts: object, text: string) => void process.send?.(text),
  error: (_facts: object, text: string) => void process.send?.(text),
};
const sluice = createSluice({ redis, prefix, logger });
const queue = sluice.queue<string>("jobs", { bucket: sluice.bucket("downstream", policy) });

sluice.worker(
  queue,
  async ({ id, data: url }, { signal }) => {
    const response = await fetch(url, { headers: { "x-job": id }, signal });
    await response.arrayBuffer();
    if (!response.ok) throw new Error(`answered ${response.status}`, { cause: response });
  },
  options,
);
process.once("message", async () => {
  await sluice.close();
  process.disconnect?.();
});
