/** Works until the queue has nothing left that could run, then ends. Needs $REDIS_URL. */
import { randomUUID } from "node:crypto";
import { createSluice, Discard } from "sluice";
import { onStop, ownPrefix } from "../shared/own-prefix.ts";

await using own = ownPrefix(`drain-${randomUUID().slice(0, 8)}`);
// Silent, because the job that fails is printed at the end.
const logger = { warn: () => {}, error: () => {} };
await using sluice = createSluice({ prefix: own.prefix, logger });
onStop(async () => {
  await sluice.close();
  await own[Symbol.asyncDispose]();
});
const bucket = sluice.bucket("statements-api", { rate: "20/s" });
const statements = sluice.queue<{ account: string }>("statements", { bucket });

const accounts = ["ann", "bob", "carla", "closed"];
await statements.enqueueMany(accounts.map((account) => ({ account })));
await statements.enqueue({ account: "dora" }, { delayMs: 3_600_000 });

const worker = sluice.worker(statements, async ({ data: { account } }) => {
  if (account === "closed") throw new Discard("the account is closed");
  console.log(`sent the statement of ${account}`);
});
const { reason, done, failed, delayed } = await worker.drain({ idleMs: 500 });
console.log(`${reason}: ${done} done, ${failed} failed for good, ${delayed} due later`);
// A command for cron would now set process.exitCode from `failed`, as `sluice worker --until-empty` does.
