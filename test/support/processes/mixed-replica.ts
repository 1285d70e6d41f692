/** A replica that calls a downstream through one bucket with several limits. */
import { concurrency, createSluice, leakyBucket, slidingLog } from "sluice";

const [redis = "", prefix = "", url = "", calls = "0", first = "0"] = process.argv.slice(2);
const sluice = createSluice({ redis, prefix, storeTimeoutMs: 30_000 });
const bucket = sluice.bucket("mixed", {
  limits: [
    leakyBucket("150/s"),
    leakyBucket("9000/s", { unit: "tokens", burst: 400 }),
    slidingLog(120, "1s"),
    concurrency(8, { leaseMs: 2_000 }),
  ],
  perKey: { rate: "20/s" },
});

async function call(number: number): Promise<void> {
  const tokens = 10 + ((number * 37) % 90);
  const key = `k${number % 12}`;
  const slot = await bucket.draw({ key, cost: { tokens } });
  const headers = { "x-slot-ms": String(slot.atMs), "x-tokens": String(tokens), "x-key": key };
  try {
    const response = await fetch(url, { method: "POST", headers });
    await response.arrayBuffer();
  } finally {
    slot.release();
  }
}

process.send?.("ready");
await new Promise<void>((resolve) => process.once("message", () => resolve()));
const numbers = Array.from({ length: Number(calls) }, (_, index) => Number(first) + index);
await Promise.all(numbers.map(call));
await sluice.close();
process.disconnect?.();
