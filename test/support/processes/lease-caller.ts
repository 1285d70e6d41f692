/** A replica whose calls hold leases while their downstream takes its time. */
import { concurrency, createSluice } from "sluice";

const [redis = "", prefix = "", url = "", calls = "0"] = process.argv.slice(2);
const sluice = createSluice({ redis, prefix, storeTimeoutMs: 30_000 });
const bucket = sluice.bucket("downstream", { limits: [concurrency(10, { leaseMs: 1_000 })] });

const call = bucket.throttled(async () => {
  const response = await fetch(url, {
    method: "POST",
    headers: { "x-pid": String(process.pid) },
  });
  await response.arrayBuffer();
});

process.send?.("ready");
await new Promise<void>((resolve) => process.once("message", () => resolve()));
await Promise.all(Array.from({ length: Number(calls) }, () => call()));
await sluice.close();
process.disconnect?.();
