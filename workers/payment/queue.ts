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
 * A job's data: what to charge and how, in the form of Stripe's client.
 * Pass the account as the job's `key` too, so that the account's own limit holds.
 */
export type Payment = {
  /** The connected account to charge on. Defaults to the API key's account. */
  readonly account?: string | undefined;
} & (
  | { readonly paymentIntent: Stripe.PaymentIntentCreateParams }
  | { readonly charge: Stripe.ChargeCreateParams }
);

/** A job's result. It leaves out the payment intent's secret; ask Stripe for that by the id. */
export interface PaymentResult {
  readonly id: string;
  /** In Stripe's words: `"succeeded"`, `"requires_action"`. */
  readonly status: string;
  readonly amount: number;
  readonly currency: string;
}

export const PAYMENT_QUEUE = {
  ...queueVariables("payments"),
  ...rateVariables("25/s"),
  keyRate: { name: "SLUICE_KEY_RATE", as: rate.default("10/s") },
};

/** Opens the queue of payments that the environment names; producers and workers use the same one. */
export function openPaymentQueue(
  sluice: Sluice,
  settings: SettingsOf<typeof PAYMENT_QUEUE> = readSettings(process.env, PAYMENT_QUEUE),
): Queue<Payment, PaymentResult> {
  const { queue, bucket = queue, burst, keyRate, parallel: concurrency } = settings;
  const policy = { rate: settings.rate, burst, concurrency, perKey: { rate: keyRate } };
  return sluice.queue(queue, { bucket: sluice.bucket(bucket, policy) });
}
