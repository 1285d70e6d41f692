/** Holds both leases of a bucket until it is killed. */
import { concurrency, createSluice } from "sluice";

const [redis = "", prefix = ""] = process.argv.slice(2);
const sluice = createSluice({ redis, prefix, storeTimeoutMs: 30_000 });
const bucket = sluice.bucket("leased", { limits: [concurrency(2, { leaseMs: 1_000 })] });

for (let lease = 1; lease <= 2; lease++) {
  await bucket.draw();
  process.send?.(lease);
}
