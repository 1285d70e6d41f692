/** Charges test cards through workers/payment-worker.ts; one of them is declined. Use only a Stripe test key. */
import { createSluice, JobFailedError } from "sluice";
import { openPaymentQueue } from "../../workers/payment/queue.ts";

await using sluice = createSluice({ prefix: process.env["SLUICE_PREFIX"] });
const queue = openPaymentQueue(sluice);

const orders = [
  { amount: 1_200, card: "pm_card_visa" },
  { amount: 4_500, card: "pm_card_mastercard" },
  { amount: 700, card: "pm_card_visa_chargeDeclined" },
];
const jobs = await queue.enqueueMany(
  orders.map(({ amount, card: payment_method }) => ({
    paymentIntent: {
      amount,
      currency: "eur",
      payment_method,
      confirm: true,
      automatic_payment_methods: { enabled: true, allow_redirects: "never" as const },
    },
  })),
  // The merchant whose limit counts these calls.
  { key: "merchant-1" },
);
for (const [index, job] of jobs.entries()) {
  const { amount } = orders[index]!;
  try {
    const { id, status } = await job.finished({ timeoutMs: 60_000 });
    console.log(`${amount} cents: ${status} as ${id}`);
  } catch (error) {
    if (!(error instanceof JobFailedError)) throw error;
    console.log(`${amount} cents: not charged, ${error.reason}`);
  }
}
