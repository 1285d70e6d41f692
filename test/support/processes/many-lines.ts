/** Many replicas in one process that each draw once from an empty bucket at one instant, and tell their slots. */
import { createSluice } from "sluice";

const [redis = "", prefix = "", rate = "", lines = "0"] = process.argv.slice(2);
const sluices = Array.from({ length: Number(lines) }, () =>
  createSluice({ redis, prefix, storeTimeoutMs: 120_000 }),
);

process.send?.("ready");
await new Promise<void>((resolve) => process.once("message", () => resolve()));
const slots = await Promise.all(
  sluices.map((sluice) => sluice.bucket("downstream", { rate }).draw()),
);
process.send?.(slots.map(({ atMs }) => atMs));
await Promise.all(sluices.map((sluice) => sluice.close()));
process.disconnect?.();
