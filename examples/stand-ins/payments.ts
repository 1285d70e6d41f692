import { json, type StandInAnswer, type StandInCall } from "./server.ts";

/** A stand-in for two calls of Stripe's API. */
export interface PaymentsStandIn {
  /** All charges, in order. */
  readonly charged: readonly { readonly amount: number; readonly account: string | undefined }[];
  answer(call: StandInCall): StandInAnswer;
}

const KIND_OF: Readonly<Record<string, { readonly object: string; readonly id: string }>> = {
  "/v1/payment_intents": { object: "payment_intent", id: "pi" },
  "/v1/charges": { object: "charge", id: "ch" },
};
/** Stripe's name for a test card that is declined. */
const DECLINED = "pm_card_visa_chargeDeclined";

/**
 * Stores its responses by idempotency key, as Stripe does. A repeated call gets the same response and charges
 * nothing.
 */
export function createPayments(): PaymentsStandIn {
  const charged: PaymentsStandIn["charged"][number][] = [];
  const kept = new Map<string, { readonly body: string; readonly answer: StandInAnswer }>();

  function charge({ path, headers, body }: StandInCall): StandInAnswer {
    const { object, id } = KIND_OF[path]!;
    const params = new URLSearchParams(body);
    if (params.get("payment_method") === DECLINED) {
      return refuse(402, { type: "card_error", code: "card_declined", message: "Declined." });
    }
    const amount = Number(params.get("amount"));
    charged.push({ amount, account: textOf(headers["stripe-account"]) });
    const about = { amount, currency: params.get("currency"), status: "succeeded" };
    return json(200, { id: `${id}_${charged.length}`, object, ...about });
  }

  return {
    charged,
    answer(call) {
      if (call.method !== "POST" || KIND_OF[call.path] === undefined) {
        return refuse(404, { type: "invalid_request_error", message: "Unrecognized URL" });
      }
      if (textOf(call.headers["authorization"]) === undefined) {
        return refuse(401, { type: "invalid_request_error", message: "No API key" });
      }
      const key = textOf(call.headers["idempotency-key"]) ?? "";
      const before = kept.get(key);
      if (before !== undefined && before.body !== call.body) {
        return refuse(400, { type: "idempotency_error", message: "Another call had this key" });
      }
      const answer = before?.answer ?? charge(call);
      kept.set(key, { body: call.body, answer });
      return answer;
    },
  };
}

function refuse(status: number, error: object): StandInAnswer {
  return json(status, { error });
}

function textOf(header: string | string[] | undefined): string | undefined {
  return Array.isArray(header) ? header[0] : header;
}
