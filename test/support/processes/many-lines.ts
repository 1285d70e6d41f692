/** Many replicas in one process that all draw from an empty bucket at one instant, and tell their slots. */
import { createSluice } from "sluice";

const [redis = "", prefix = "", rate = "", lines = "0", calls = "0"] = process.argv.slice(2);
const sluices = Array.from({ length: Number(lines) }, () =>
  createSluice({ redis, prefix, storeTimeoutMs: 30_000 }),
);

process.send?.("ready");
await new Promise<void>((resolve) => process.once("message", () => resolve()));
const slots = await Promise.all(
  sluices.flatMap((sluice) => {
    const bucket = sluice.bucket("downstream", { rate });
    return Array.from({ length: Number(calls) }, () => bucket.draw());
  }),
);
process.send?.(slots.map(({ atMs }) => atMs));
await Promise.all(sluices.map((sluice) => sluice.close()));
process.disconnect?.();
