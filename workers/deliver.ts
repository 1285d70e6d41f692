import { z } from "zod";

/** The data of a webhook's job. */
export interface Webhook {
  /** Where it goes: http or https. */
  readonly url: string;
  /** Sent as JSON. */
  readonly payload: unknown;
  /** Sent along; they win over the worker's own. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
}

/** Thrown when a webhook was not accepted. Its message is safe to log: no address, header or payload. */
export class DeliveryError extends Error {
  override readonly name = "DeliveryError";
}

export interface DeliverOptions {
  /** How long one delivery may take in all. */
  readonly timeoutMs: number;
  readonly userAgent: string;
}

/** Sends a webhook once and resolves with the status it was accepted with, from 200 to 299. */
export type Deliver = (webhook: Webhook, signal: AbortSignal) => Promise<number>;

const WEBHOOK = z.object({
  url: z.url({ protocol: /^https?$/, error: "its url is no http or https address" }),
  payload: z.unknown().refine((payload) => payload !== undefined, { error: "it has no payload" }),
  headers: z.record(z.string(), z.string(), { error: "its headers are no strings" }).optional(),
});

export function createDeliver({ timeoutMs, userAgent }: DeliverOptions): Deliver {
  return async (webhook, signal) => {
    const { url, payload, headers } = readWebhook(webhook);
    const request = {
      method: "POST",
      // A redirect could lead anywhere, so it counts as a refusal.
      redirect: "manual",
      headers: mergeHeaders(userAgent, headers ?? {}),
      body: JSON.stringify(payload),
    } as const;

    const late = new DeliveryError(`got no answer within ${timeoutMs} ms`);
    const stop = new AbortController();
    const timer = setTimeout(() => stop.abort(late), timeoutMs);
    const leave = (): void => stop.abort(new DeliveryError("was stopped by its worker"));
    signal.addEventListener("abort", leave, { once: true });
    if (signal.aborted) leave();
    try {
      const response = await fetch(url, { ...request, signal: stop.signal });
      // Only the status counts; an endless answer must not hold the worker.
      await response.body?.cancel();
      if (!response.ok) throw new DeliveryError(`was answered ${response.status}`);
      return response.status;
    } catch (error) {
      throw error instanceof DeliveryError ? error : new DeliveryError(unreachable(error));
    } finally {
      clearTimeout(timer);
      signal.removeEventListener("abort", leave);
    }
  };
}

function readWebhook(data: unknown): Webhook {
  const read = WEBHOOK.safeParse(data);
  if (read.success) return read.data;
  throw new DeliveryError(`cannot be sent: ${read.error.issues[0]!.message}`);
}

function mergeHeaders(userAgent: string, given: Readonly<Record<string, string>>): Headers {
  const headers = new Headers({ "content-type": "application/json", "user-agent": userAgent });
  for (const [name, value] of Object.entries(given)) {
    try {
      headers.set(name, value);
    } catch {
      // The error of Headers would show the value, which may be a secret.
      throw new DeliveryError("cannot be sent: a header has a name or value that HTTP forbids");
    }
  }
  return headers;
}

/** Only the code of what fetch threw: its text may hold parts of the request. */
function unreachable(error: unknown): string {
  const { cause } = error as { readonly cause?: { readonly code?: unknown } };
  const code = typeof cause?.code === "string" ? cause.code : "no connection";
  return `could not be sent (${code})`;
}
