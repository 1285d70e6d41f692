import { randomBytes } from "node:crypto";
import { createSecret } from "sluice/webhooks";
import { answerChat } from "./chat.ts";
import { createWebhookReceiver } from "./receiver.ts";
import { createPayments } from "./payments.ts";
import { startStandIn, type StandIn } from "./server.ts";

/** A worker, its producer, and a stand-in that answers if there is no API key for the real API. */
export interface Pair {
  readonly worker: string;
  readonly producer: string;
  /** The environment variable that enables the real API. */
  readonly needs: string;
  /**
   * Environment variables that both processes need, with the real API and with the stand-in. Does not replace
   * variables that are already set.
   */
  readonly env?: () => Readonly<Record<string, string>>;
  readonly startStandIn: () => Promise<StandIn>;
  /** The environment variables that direct calls to the stand-in. */
  readonly standInEnv: (url: string) => Readonly<Record<string, string>>;
}

const WEBHOOK_SECRET = createSecret();

export const PAIRS: Readonly<Record<string, Pair>> = {
  webhook: {
    worker: "workers/webhook-worker.ts",
    producer: "examples/producers/webhook.ts",
    needs: "WEBHOOK_URL",
    env: () => ({ SLUICE_WEBHOOK_KEYS: `k1:${randomBytes(32).toString("base64")}` }),
    startStandIn: () => startStandIn(createWebhookReceiver(WEBHOOK_SECRET)),
    standInEnv: (url) => ({
      WEBHOOK_URL: url,
      WEBHOOK_SECRET,
      SLUICE_ALLOW: "127.0.0.0/8",
      SLUICE_ALLOW_HTTP: "true",
    }),
  },
  llm: {
    worker: "workers/llm-worker.ts",
    producer: "examples/producers/llm.ts",
    needs: "OPENAI_API_KEY",
    startStandIn: () => startStandIn(answerChat),
    standInEnv: (url) => ({ OPENAI_API_KEY: "sk-stand-in", OPENAI_BASE_URL: `${url}/v1` }),
  },
  payment: {
    worker: "workers/payment-worker.ts",
    producer: "examples/producers/payment.ts",
    needs: "STRIPE_SECRET_KEY",
    startStandIn: () => {
      const payments = createPayments();
      return startStandIn((call) => payments.answer(call));
    },
    standInEnv: (url) => ({ STRIPE_SECRET_KEY: "sk_test_stand-in", STRIPE_BASE_URL: url }),
  },
};
