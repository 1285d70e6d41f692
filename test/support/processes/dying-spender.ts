/** A replica that spends a budget, and is killed when a part of it is reached, before it can send the warning. */
import process from "node:process";
import { budget, createSluice } from "sluice";
import { createWebhooks } from "sluice/webhooks";

const sluice = createSluice({
  redis: process.env["REDIS_URL"]!,
  prefix: process.env["SLUICE_PREFIX"]!,
});
const limits = [budget({ unit: "usd", amount: 10, per: "year", warnAt: [0.5, 1] })];
const llm = sluice.bucket("llm", { perKey: { limits } });
const hooks = createWebhooks(sluice, { operator: "ops" });

llm.on("budget", () => process.kill(process.pid, "SIGKILL"));
hooks.sendBudgetWarnings(llm);
await llm.draw({ key: ["acme"], cost: { usd: 6 } });
await new Promise(() => setInterval(() => {}, 1_000));
