/** A replica that calls a downstream through one throttled function, with a backlog from the start. */
import { createSluice } from "sluice";

const [redis = "", prefix = "", rate = "", url = "", calls = "0"] = process.argv.slice(2);
const sluice = createSluice({ redis, prefix, storeTimeoutMs: 30_000 });
const bucket = sluice.bucket("downstream", { rate });

async function call(): Promise<void> {
  const slot = await bucket.draw();
  const headers = { "x-slot-ms": String(slot.atMs), "x-pid": String(process.pid) };
  const response = await fetch(url, { method: "POST", headers });
  await response.arrayBuffer();
}

process.send?.("ready");
await new Promise<void>((resolve) => process.once("message", () => resolve()));
await Promise.all(Array.from({ length: Number(calls) }, call));
await sluice.close();
process.disconnect?.();
