import { Webhook } from "standardwebhooks";
import { json, type StandInAnswer, type StandInCall } from "./server.ts";

/** Creates a webhook receiver that does not use Sluice. It verifies webhooks with the official library. */
export function createWebhookReceiver(secret: string): (call: StandInCall) => StandInAnswer {
  const verifier = new Webhook(secret);
  return ({ headers, body }) => {
    try {
      verifier.verify(body, headers as Record<string, string>);
      return json(200, {});
    } catch {
      return json(400, { error: "The signature does not fit." });
    }
  };
}
