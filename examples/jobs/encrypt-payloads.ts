/** Encrypts the data and results of jobs, rotates the key, and shows what Redis stores. Needs $REDIS_URL. */
import { randomBytes, randomUUID } from "node:crypto";
import { createSluice } from "sluice";
import { compression, encryption } from "sluice/codec";
import { onStop, ownPrefix } from "../shared/own-prefix.ts";

await using own = ownPrefix(`encrypt-${randomUUID().slice(0, 8)}`);
const newKey = (): string => randomBytes(32).toString("base64");
const [k1, k2] = [newKey(), newKey()];
await using producer = createSluice({ prefix: own.prefix });
await using service = createSluice({ prefix: own.prefix });
onStop(async () => {
  await Promise.all([producer.close(), service.close()]);
  await own[Symbol.asyncDispose]();
});
const options = { rate: "20/s" } as const;

// The producer still encrypts with the first key.
const before = producer.queue<{ iban: string }, string>("payouts", {
  bucket: producer.bucket("bank-api", options),
  codec: [compression(), encryption({ keys: { current: "k1", k1, k2 } })],
});
const first = await before.enqueue({ iban: "DE89 3704 0044 0532 0130 00" });

// A process without the codec sees only which key it needs.
await using operator = createSluice({ prefix: own.prefix });
const plain = operator.queue("payouts", { bucket: operator.bucket("bank-api", options) });
console.log(`without the key: ${(await plain.job(first.id))?.unreadable?.codec}`);

// The worker encrypts with the second key, and still reads payloads of the first.
const after = service.queue<{ iban: string }, string>("payouts", {
  bucket: service.bucket("bank-api", options),
  codec: [compression(), encryption({ keys: { current: "k2", k1, k2 } })],
});
service.worker(after, async ({ data }) => `paid to ${data.iban}`);
console.log(await first.finished());
const second = await after.enqueue({ iban: "GB29 NWBK 6016 1331 9268 19" });
console.log(await second.finished());
