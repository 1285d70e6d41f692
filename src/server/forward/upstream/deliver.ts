import { once } from "node:events";
import type { ServerResponse } from "node:http";
import type { UpstreamResponse } from "./response.ts";

/**
 * Sends the response of an upstream to the client as it arrives. `response` is what the bucket
 * returned. It is either the upstream's response itself, or a response through which the bucket
 * observes the body.
 */
export function deliver(
  raw: ServerResponse,
  answer: UpstreamResponse,
  response: Response,
  signal: AbortSignal,
): void {
  raw.sendDate = false;
  raw.writeHead(answer.statusCode, answer.clientHeaders);
  if ((response as unknown) === answer && answer.flowTo(raw)) return;
  // Destroy the connection, because a partial response must not look complete.
  copy(response.body, raw, signal).catch(() => raw.destroy());
}

async function copy(
  body: ReadableStream<Uint8Array> | null,
  raw: ServerResponse,
  signal: AbortSignal,
): Promise<void> {
  if (body === null) return void raw.end();
  raw.flushHeaders();
  const reader = body.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      if (!raw.write(value)) await once(raw, "drain", { signal });
    }
    raw.end();
  } catch (error) {
    await reader.cancel(error).catch(() => {});
    throw error;
  }
}
