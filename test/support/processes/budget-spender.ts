/**
 * A process that spends a budget. It draws as long as calls fit, and reports what it has spent. With `hang`, it draws
 * once, says so, and then never settles.
 */
import { budget, BudgetSpentError, createSluice } from "sluice";

const [redis = "", prefix = "", mode = "", cost = "0"] = process.argv.slice(2);
const sluice = createSluice({ redis, prefix, storeTimeoutMs: 30_000 });
const limit = budget({ unit: "usd", amount: 5, per: "year", reserveMs: 2_000 });
const bucket = sluice.bucket("llm", { limits: [limit] });
const usd = Number(cost);
let calls = 0;

async function spend(): Promise<void> {
  try {
    for (;;) {
      await bucket.draw({ cost: { usd } });
      calls += 1;
    }
  } catch (error) {
    if (!(error instanceof BudgetSpentError)) throw error;
  }
}

process.send?.("ready");
await new Promise<void>((resolve) => process.once("message", () => resolve()));
if (mode === "hang") {
  await bucket.draw({ cost: { usd }, settles: true });
  process.send?.("drawn");
  setInterval(() => {}, 1_000);
} else {
  await Promise.all([1, 2, 3, 4].map(spend));
  process.send?.(calls);
  await sluice.close();
  process.disconnect?.();
}
