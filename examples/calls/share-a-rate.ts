/**
 * Two tenants share 20 calls a second. `large` starts 60 calls at once, and `small` makes one call after the other. The
 * calls of `small` do not wait for the flood: `small` has a floor of 5 calls a second. With $REDIS_URL set, all
 * processes that run this example share the rate.
 */
import { createSluice } from "sluice";
import { onStop, ownPrefix } from "../shared/own-prefix.ts";

/** Replace this with the call to your downstream. */
async function callFor(tenant: string, number: number): Promise<string> {
  return `${tenant} ${number}`;
}

await using own = ownPrefix("share");
await using sluice = createSluice({ prefix: own.prefix });
onStop(async () => {
  await sluice.close();
  await own[Symbol.asyncDispose]();
});
const api = sluice.bucket("api", {
  rate: "20/s",
  fair: { weights: { large: 2 }, floors: { small: "5/s" } },
});
const call = api.throttled(callFor, { key: (tenant) => tenant });

let ofLarge = 0;
const flood = Array.from({ length: 60 }, async (_, number) => {
  await call("large", number);
  ofLarge += 1;
});
for (let number = 1; number <= 5; number++) {
  const done = await call("small", number);
  console.log(`${done} is done, after ${ofLarge} of 60 calls of large`);
}
for (const { key, weights, floor } of (await api.peek()).turns) {
  console.log(`${String(key)} still waits: weight ${weights.join()}, floor ${floor ?? "none"}`);
}
await Promise.all(flood);
console.log(`large is done too, with ${ofLarge} calls`);
