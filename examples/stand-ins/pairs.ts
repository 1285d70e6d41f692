import { answerChat } from "./chat.ts";
import { createPayments } from "./payments.ts";
import { json, startStandIn, type StandIn } from "./server.ts";

/** A worker, its producer, and the stand-in that answers when there is no key for the real API. */
export interface Pair {
  readonly worker: string;
  readonly producer: string;
  /** The variable that the real API needs. */
  readonly needs: string;
  readonly startStandIn: () => Promise<StandIn>;
  /** The environment that sends calls to the stand-in. */
  readonly standInEnv: (url: string) => Readonly<Record<string, string>>;
}

export const PAIRS: Readonly<Record<string, Pair>> = {
  webhook: {
    worker: "workers/webhook-worker.ts",
    producer: "examples/producers/webhook.ts",
    needs: "WEBHOOK_URL",
    startStandIn: () => startStandIn(() => json(200, {})),
    standInEnv: (url) => ({ WEBHOOK_URL: url }),
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
