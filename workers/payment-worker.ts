import { loggedHandler } from "./shared/logged-handler.ts";
import { createCharge, idempotencyKeyOf } from "./payment/charge.ts";
import {
  openPaymentQueue,
  PAYMENT_QUEUE,
  type Payment,
  type PaymentResult,
} from "./payment/queue.ts";
import { runQueueWorker } from "./shared/queue-worker.ts";
import { apiKey, baseUrl, workerVariables } from "./shared/settings.ts";

const VARIABLES = {
  ...PAYMENT_QUEUE,
  ...workerVariables({ timeoutMs: 30_000 }),
  apiKey: { name: "STRIPE_SECRET_KEY", as: apiKey, isSecret: true },
  baseUrl: { name: "STRIPE_BASE_URL", as: baseUrl("https://api.stripe.com"), isSecret: true },
};
const NOTHING: Payment = { charge: {} };

// Charges each payment once, however often its job is attempted.
await runQueueWorker(VARIABLES, (settings) => {
  const charge = createCharge(settings);
  return {
    open: (sluice) => openPaymentQueue(sluice, settings),
    tryOut: (baseUrl) => createCharge({ ...settings, baseUrl, apiKey: "none" })(NOTHING, "none"),
    handler: (log) =>
      loggedHandler<Payment, PaymentResult>({
        log,
        texts: { done: "Charged.", failed: "Not charged." },
        facts: (payment) => ({ account: payment?.account }),
        call: (job) => charge(job.data, idempotencyKeyOf(settings.queue, job)),
      }),
  };
});
