/** Eight callers share one rate of 5 calls a second; with $REDIS_URL set, so do all processes that run this. */
import { createSluice } from "sluice";
import { onStop, ownPrefix } from "./shared/own-prefix.ts";

interface Charge {
  readonly customer: string;
  readonly cents: number;
}

/** Replace this with your client's call; its result passes through. */
async function createCharge(charge: Charge): Promise<string> {
  return `${charge.customer} pays ${charge.cents} cents`;
}

await using own = ownPrefix("client");
await using sluice = createSluice({ prefix: own.prefix });
onStop(async () => {
  await sluice.close();
  await own[Symbol.asyncDispose]();
});
const payments = sluice.bucket("payments", { rate: "5/s" });
const charge = payments.throttled(createCharge);

const startMs = performance.now();
const customers = ["ada", "grace", "edsger", "barbara", "donald", "frances", "niklaus", "radia"];
await Promise.all(
  customers.map(async (customer) => {
    const receipt = await charge({ customer, cents: 1_000 });
    const atMs = Math.round(performance.now() - startMs);
    console.log(`${String(atMs).padStart(5)} ms  ${receipt}`);
  }),
);
