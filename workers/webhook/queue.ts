import process from "node:process";
import type { Queue, Sluice } from "sluice";
import {
  readSettings,
  type SettingsOf,
  queueVariables,
  rateVariables,
} from "../shared/settings.ts";
import type { Webhook } from "./deliver.ts";

export const WEBHOOK_QUEUE = { ...queueVariables("webhooks"), ...rateVariables("100/s") };

/** Opens the queue of webhooks that the environment names; producers and workers use the same one. */
export function openWebhookQueue(
  sluice: Sluice,
  settings: SettingsOf<typeof WEBHOOK_QUEUE> = readSettings(process.env, WEBHOOK_QUEUE),
): Queue<Webhook, number> {
  const { queue, bucket = queue, rate, burst, parallel: concurrency } = settings;
  return sluice.queue(queue, { bucket: sluice.bucket(bucket, { rate, burst, concurrency }) });
}
