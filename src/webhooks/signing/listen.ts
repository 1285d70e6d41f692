import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import process from "node:process";
import * as z from "zod";
import { InvalidOptionError } from "../../core/errors.ts";
import { readOptions } from "../../core/input/options.ts";
import { WebhookVerificationError } from "../errors.ts";
import { SECRETS } from "./secrets.ts";
import { HEADER_PREFIX, STYLE } from "./sign.ts";
import { verify, type VerifyOptions } from "./verify.ts";

/** The options of `listen`. */
export interface ListenForWebhooksOptions extends Pick<
  VerifyOptions,
  "secret" | "signature" | "headerPrefix"
> {
  /** Called with one line per request. Defaults to writing to standard output. */
  readonly print?: ((line: string) => void) | undefined;
}

/** A webhook receiver on this machine. */
export interface WebhookListener {
  readonly url: string;
  close(): Promise<void>;
}

const OPTIONS = z.strictObject({
  secret: SECRETS,
  signature: STYLE.optional(),
  headerPrefix: HEADER_PREFIX.optional(),
  print: z
    .custom<(line: string) => void>((print) => typeof print === "function", {
      error: "give a function of a line",
    })
    .optional(),
});
const MOST_BYTES = 1_000_000;

/**
 * Starts a receiver for development on 127.0.0.1. It verifies and prints each webhook. It replies
 * with 204, or with 400 if verification fails. To a verified webhook at `/fail/503` or below, it
 * replies with that status: any from 400 to 599. Port 0 picks a free port.
 *
 * @throws {@link InvalidOptionError} when an option can never work.
 */
export async function listen(
  port: number,
  options: ListenForWebhooksOptions,
): Promise<WebhookListener> {
  const where = "listen()";
  if (!Number.isInteger(port) || port < 0 || port > 65_535) {
    const remedy = "give a port from 0 to 65535";
    throw new InvalidOptionError({ where, option: "port", value: port, remedy });
  }
  const { print = printLine, ...how } = readOptions(where, OPTIONS, options);
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    let length = 0;
    try {
      // Reading the body rejects if the sender closes its connection early.
      for await (const chunk of request as AsyncIterable<Buffer>) {
        length += chunk.length;
        if (length > MOST_BYTES) break;
        chunks.push(chunk);
      }
      const { id, payload } = verify({
        ...how,
        body: Buffer.concat(chunks),
        headers: request.headers,
      });
      const status = statusOf(request.url) ?? 204;
      const said = [request.url, status, "verified", typeOf(payload), id, JSON.stringify(payload)];
      print(said.filter((each) => each !== undefined).join(" "));
      response.writeHead(status).end();
    } catch (error) {
      const status = error instanceof WebhookVerificationError ? 400 : 500;
      print(`${request.url ?? "/"} ${status} refused: ${String(error)}`);
      response.writeHead(status).end();
    }
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, "127.0.0.1", resolve);
  });
  const { port: taken } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${taken}`,
    async close() {
      server.closeAllConnections();
      await new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
}

function typeOf(payload: unknown): string | undefined {
  const { type } = Object(payload) as { readonly type?: unknown };
  return typeof type === "string" ? type : undefined;
}

function statusOf(path = "/"): number | undefined {
  const [, status] = /^\/fail\/([45]\d\d)(?:[/?]|$)/.exec(path) ?? [];
  return status === undefined ? undefined : Number(status);
}

function printLine(line: string): void {
  process.stdout.write(`${line}\n`);
}
