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
 * A job's data: what to charge and how, in the form of Stripe's client. Also pass the account as the job's `key`, so
 * that the account's own limit applies.
 */
export type Payment = {
  /** The connected account to charge on. Defaults to the API key's account. */
  readonly account?: string | undefined;
} & (
  | { readonly paymentIntent: Stripe.PaymentIntentCreateParams }
  | { readonly charge: Stripe.ChargeCreateParams }
);

/**
 * A job's result. It does not include the payment intent's client secret. Use the id to request the secret from Stripe.
 */
export interface PaymentResult {
  readonly id: string;
  /** The payment status, as Stripe reports it: `"succeeded"`, `"requires_action"`. */
  readonly status: string;
  readonly amount: number;
  readonly currency: string;
}

export const PAYMENT_QUEUE = {
  ...queueVariables("payments"),
  ...rateVariables("25/s"),
  keyRate: { name: "SLUICE_KEY_RATE", as: rate.default("10/s") },
};

/** Opens the payment queue with the name from the environment. Producers and workers must use the same queue. */
export function openPaymentQueue(
  sluice: Sluice,
  settings: SettingsOf<typeof PAYMENT_QUEUE> = readSettings(process.env, PAYMENT_QUEUE),
): Queue<Payment, PaymentResult> {
  const { queue, bucket = queue, burst, keyRate, parallel: concurrency } = settings;
  const policy = { rate: settings.rate, burst, concurrency, perKey: { rate: keyRate } };
  return sluice.queue(queue, { bucket: sluice.bucket(bucket, policy) });
}
