import { randomBytes } from "node:crypto";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { onTestFinished } from "vitest";
import {
  startFakeDownstream,
  type FakeDownstream,
  type FakeDownstreamOptions,
} from "sluice/testing";
import {
  createWebhooks,
  type PutEndpoint,
  type Webhooks,
  type WebhooksOptions,
} from "sluice/webhooks";
import type { Logger } from "../../../src/core/logger.ts";
import { waitUntil } from "../async/wait-until.ts";
import type { RealSluices } from "../setup/real-sluice.ts";

export const KEYS = `k1:${randomBytes(32).toString("base64")}`;
export const SILENT: Logger = { warn: () => {}, error: () => {} };

/** What lets a sender reach servers of this machine. */
export const LOCAL: WebhooksOptions = { keys: KEYS, http: true, allow: ["127.0.0.0/8"] };

/** Another replica of the test's sender. */
export function openHooks(
  sluices: Pick<RealSluices, "open">,
  options: WebhooksOptions = {},
  logger: Logger = SILENT,
): Webhooks {
  return createWebhooks(sluices.open({ logger }), { ...LOCAL, ...options });
}

/** A receiver; it ends after the test. */
export async function startReceiver(options?: FakeDownstreamOptions): Promise<FakeDownstream> {
  const receiver = await startFakeDownstream(options);
  onTestFinished(() => receiver.close());
  return receiver;
}

/** A receiver whose requests are answered by hand. */
export async function startHolding(): Promise<{ url: string; held: ServerResponse[] }> {
  const held: ServerResponse[] = [];
  const server = createServer((_request, response) => void held.push(response));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, held };
}

/** Puts an endpoint, and returns its secret. */
export async function put(hooks: Webhooks, endpoint: PutEndpoint): Promise<string> {
  const { secret } = await hooks.endpoints.put(endpoint);
  return secret!;
}

/** Resolves when nothing waits or runs, later attempts included. */
export async function untilIdle(hooks: Webhooks): Promise<void> {
  await waitUntil(async () => {
    const { waiting, active, delayed } = await hooks.queue.counts();
    return waiting + active + delayed === 0;
  }, "nothing waits or runs");
}
