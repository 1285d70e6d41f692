import { Discard } from "sluice";
import { z } from "zod";
import { CallError, callInTime } from "../shared/call.ts";

/** A webhook job's data. */
export interface Webhook {
  /** The http or https URL to send to. */
  readonly url: string;
  /** Sent as JSON. */
  readonly payload: unknown;
  /** Extra headers; they override the worker's own. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
}

export interface DeliverOptions {
  /** The longest time for one whole delivery. */
  readonly timeoutMs: number;
  readonly userAgent: string;
}

/** Sends a webhook once; resolves with the status of acceptance, 200 to 299. */
export type Deliver = (webhook: Webhook, signal: AbortSignal) => Promise<number>;

const WEBHOOK = z.object({
  url: z.url({ protocol: /^https?$/, error: "its url is not an http or https address" }),
  payload: z.unknown().refine((payload) => payload !== undefined, { error: "it has no payload" }),
  headers: z.record(z.string(), z.string(), { error: "its headers are not strings" }).optional(),
});

export function createDeliver({ timeoutMs, userAgent }: DeliverOptions): Deliver {
  return async (webhook, signal) => {
    const { url, payload, headers } = readWebhook(webhook);
    const request = {
      url,
      method: "POST",
      headers: mergeHeaders(userAgent, headers ?? {}),
      body: JSON.stringify(payload),
    };
    return callInTime(request, { timeoutMs, signal }, readStatus);
  };
}

async function readStatus(response: Response): Promise<number> {
  // Only the status counts; an endless answer must not block the worker.
  await response.body?.cancel();
  // The error has no status field: one busy receiver must not cool the bucket down for all the others.
  if (!response.ok) throw new CallError(`was answered ${response.status}`);
  return response.status;
}

function readWebhook(data: unknown): Webhook {
  const read = WEBHOOK.safeParse(data);
  if (read.success) return read.data;
  throw new Discard(`cannot be sent: ${read.error.issues[0]!.message}`);
}

function mergeHeaders(userAgent: string, given: Readonly<Record<string, string>>): Headers {
  const headers = new Headers({ "content-type": "application/json", "user-agent": userAgent });
  for (const [name, value] of Object.entries(given)) {
    try {
      headers.set(name, value);
    } catch {
      // The error of Headers would show the value, which may be secret.
      throw new Discard("cannot be sent: a header has a name or value that HTTP forbids");
    }
  }
  return headers;
}
