import { once } from "node:events";
import type { ServerResponse } from "node:http";
import type { Readable } from "node:stream";
import type { UpstreamAnswer } from "./exchange.ts";

/**
 * Sends the answer of an upstream to the client as it comes. `response` is what the bucket handed over: the same one, or
 * one by which it follows the body. Resolves when all is sent, or either side is gone: the rest is then of no use.
 */
export async function deliver(
  raw: ServerResponse,
  answer: UpstreamAnswer,
  response: Response,
  signal: AbortSignal,
): Promise<void> {
  raw.sendDate = false;
  raw.writeHead(answer.status, answer.headers);
  try {
    if (response.body === null) raw.end();
    else if (response === answer.response && !answer.isBegun()) await flow(answer.body, raw);
    else await copy(response.body, raw, signal);
  } catch {
    // Half an answer must not look like a whole one.
    raw.destroy();
  }
}

/** As `pipeline` of Node, which makes and aborts a controller of its own for each answer. */
function flow(body: Readable, raw: ServerResponse): Promise<void> {
  return new Promise((resolve) => {
    function end(): void {
      body.destroy();
      resolve();
    }
    // Half an answer must not look like a whole one.
    body.on("error", () => raw.destroy());
    body.once("close", () => {
      if (!body.readableEnded) raw.destroy();
    });
    if (raw.closed) return end();
    raw.once("close", end);
    body.pipe(raw);
  });
}

async function copy(
  body: ReadableStream<Uint8Array>,
  raw: ServerResponse,
  signal: AbortSignal,
): Promise<void> {
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
