/** A replica that calls a downstream for customers and their endpoints, each call at the path of both. */
import { concurrency, createSluice } from "sluice";

const [redis = "", prefix = "", url = "", calls = "0", endpoints = "[]"] = process.argv.slice(2);
const sluice = createSluice({ redis, prefix, storeTimeoutMs: 1_000 });
const bucket = sluice.bucket("downstream", {
  rate: "200/s",
  perKey: [{ rate: "60/s", limits: [concurrency(4, { leaseMs: 2_000 })] }, { rate: "20/s" }],
  onStoreDown: "wait",
});

async function call(key: readonly string[]): Promise<void> {
  const slot = await bucket.draw({ key });
  const headers = { "x-slot-ms": String(slot.atMs), "x-pid": String(process.pid) };
  const response = await fetch(`${url}/${key.join("/")}`, { method: "POST", headers });
  await response.arrayBuffer();
  slot.release();
}

process.send?.("ready");
await new Promise<void>((resolve) => process.once("message", () => resolve()));
const keys = (JSON.parse(endpoints) as (readonly string[])[]).flatMap((key) =>
  Array.from({ length: Number(calls) }, () => key),
);
await Promise.all(keys.map(call));
await sluice.close();
process.disconnect?.();
