import { createHash } from "node:crypto";
import { Discard } from "sluice";
import Stripe from "stripe";
import { z } from "zod";
import { CallError, isFinal } from "../shared/call.ts";
import type { Payment, PaymentResult } from "./queue.ts";

export interface ChargeOptions {
  readonly baseUrl: string;
  readonly apiKey: string;
  /** The time limit for one call, in ms. */
  readonly timeoutMs: number;
}

/** Makes a payment. Charges once for each idempotency key, however often it is called. */
export type Charge = (payment: Payment, idempotencyKey: string) => Promise<PaymentResult>;

const PARAMS = z.looseObject({});
const PAYMENT = z.union([
  z.strictObject({ account: z.string().optional(), paymentIntent: PARAMS }),
  z.strictObject({ account: z.string().optional(), charge: PARAMS }),
]);

/**
 * Returns the idempotency key of a job. The key is the same for all attempts of the job, and different for every other
 * job. The key includes the enqueue time, because job ids start from 1 again if Redis loses its data.
 */
export function idempotencyKeyOf(
  queue: string,
  { id, enqueuedAtMs }: { readonly id: string; readonly enqueuedAtMs: number },
): string {
  const hash = createHash("sha256").update(JSON.stringify([queue, id, enqueuedAtMs]));
  return `sluice-${hash.digest("hex")}`;
}

export function createCharge({ baseUrl, apiKey, timeoutMs }: ChargeOptions): Charge {
  const { protocol, hostname, port } = new URL(baseUrl);
  const stripe = new Stripe(apiKey, {
    host: hostname,
    port: port || (protocol === "http:" ? 80 : 443),
    protocol: protocol === "http:" ? "http" : "https",
    timeout: timeoutMs,
    telemetry: false,
    // The queue retries, not Stripe's client, because each try has to wait for a slot. With Node's HTTP client,
    // Stripe's client would still retry once after a broken connection, so it uses fetch.
    maxNetworkRetries: 0,
    httpClient: Stripe.createFetchHttpClient(),
  });
  return async (data, idempotencyKey) => {
    const payment = readPayment(data);
    const options = {
      idempotencyKey,
      ...(payment.account !== undefined && { stripeAccount: payment.account }),
    };
    try {
      const { id, status, amount, currency } =
        "charge" in payment
          ? await stripe.charges.create(payment.charge, options)
          : await stripe.paymentIntents.create(payment.paymentIntent, options);
      return { id, status, amount, currency };
    } catch (error) {
      throw asOutcome(error);
    }
  };
}

function readPayment(data: unknown): Payment {
  if (PAYMENT.safeParse(data).success) return data as Payment;
  throw new Discard("cannot be sent: it is neither { paymentIntent } nor { charge }");
}

/**
 * Converts an error of Stripe's client. Keeps only Stripe's error codes, because the messages may contain customer
 * names and parts of keys.
 */
function asOutcome(error: unknown): Error {
  if (!(error instanceof Stripe.errors.StripeError)) return new CallError("failed unexpectedly");
  const { statusCode: status, code, type, headers } = error;
  if (status === undefined) return new CallError(`got no answer (${type})`);
  if (status === 402) return new Discard(code ?? "card_error");
  const reason = `was answered ${status} (${code ?? type})`;
  // Stripe sometimes responds with 400 where other APIs respond with 429.
  const isPassing = error instanceof Stripe.errors.StripeRateLimitError;
  if (isFinal(status) && !isPassing) return new Discard(reason);
  return new CallError(reason, { status: isPassing ? 429 : status, headers });
}
