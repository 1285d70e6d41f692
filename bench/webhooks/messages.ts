/** The messages between a webhook benchmark and its processes. */
import type { WebhooksOptions } from "sluice/webhooks";

export interface SenderSetup {
  /** The sender of `sluice/webhooks`, or a BullMQ worker that only posts. */
  readonly kind: "sluice" | "bullmq";
  readonly redisUrl: string;
  /** The folder of the built package that sends. Defaults to this working tree. */
  readonly build?: string | undefined;
  readonly concurrency: number;
  /** Options of the sender. */
  readonly options: WebhooksOptions;
  readonly lockMs?: number;
}

/** The name of BullMQ's queue. */
export const PLAIN_QUEUE = "plain-webhooks";

/** The data of a job of the plain BullMQ worker. */
export interface PlainWebhook {
  readonly url: string;
  readonly body: string;
}

/** A message to a receiver. The first part of a path sets the receiver's response: "ok", "shaky" or "slow". */
export type ToReceiver =
  /** Clears all arrivals, and reports when this many have arrived. */
  { readonly kind: "expect"; readonly count: number } | { readonly kind: "report" };

/** One webhook that arrived. */
export interface Arrival {
  readonly path: string;
  /** The time of the arrival in ms, on the machine's clock. */
  readonly atMs: number;
  /** The time at which it was sent, if its data contains that time. */
  readonly sentMs: number | undefined;
}

export type FromReceiver =
  | { readonly kind: "listening"; readonly url: string }
  | { readonly kind: "all"; readonly tookMs: number }
  | { readonly kind: "arrivals"; readonly arrivals: readonly Arrival[]; readonly cpuUs: number };
