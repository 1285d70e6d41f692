import process from "node:process";
import type { Queue, Sluice } from "sluice";
import type Stripe from "stripe";
import {
  readSettings,
  type SettingsOf,
  queueVariables,
  rate,
  rateVariables,
} from "../shared/settings.ts";

/**
 * The data of a job: what is to be charged, and how, as Stripe's client takes it.
 * Give the account as the job's `key` too, and the account's own limit holds.
 */
export type Payment = {
  /** The connected account that it is charged on. Defaults to the one of the API key. */
  readonly account?: string | undefined;
} & (
  | { readonly paymentIntent: Stripe.PaymentIntentCreateParams }
  | { readonly charge: Stripe.ChargeCreateParams }
);

/** The result of a job. The secret of a payment intent is not kept: ask Stripe for it, by the id. */
export interface PaymentResult {
  readonly id: string;
  /** As Stripe says it: `"succeeded"`, `"requires_action"`. */
  readonly status: string;
  readonly amount: number;
  readonly currency: string;
}

export const PAYMENT_QUEUE = {
  ...queueVariables("payments"),
  ...rateVariables("25/s"),
  keyRate: { name: "SLUICE_KEY_RATE", as: rate.default("10/s") },
};

/** The queue of payments, as the environment has it; producers and workers open the same. */
export function openPaymentQueue(
  sluice: Sluice,
  settings: SettingsOf<typeof PAYMENT_QUEUE> = readSettings(process.env, PAYMENT_QUEUE),
): Queue<Payment, PaymentResult> {
  const { queue, bucket = queue, burst, keyRate, parallel: concurrency } = settings;
  const policy = { rate: settings.rate, burst, concurrency, perKey: { rate: keyRate } };
  return sluice.queue(queue, { bucket: sluice.bucket(bucket, policy) });
}
