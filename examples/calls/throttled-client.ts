/**
 * Eight callers share one rate of 5 calls a second. With $REDIS_URL set, all processes that run this example share
 * the rate.
 */
import { createSluice } from "sluice";
import { onStop, ownPrefix } from "../shared/own-prefix.ts";

interface Charge {
  readonly customer: string;
  readonly cents: number;
}

/** Replace this with your client's call. Its result is returned to the caller. */
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
