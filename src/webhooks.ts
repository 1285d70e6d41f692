import { createRedisWebhooks } from "./redis/webhooks/store.ts";
import type { Sluice } from "./sluice.ts";
import { partsOf } from "./sluice/parts.ts";
import { assembleWebhooks, type Webhooks } from "./webhooks/create-webhooks.ts";
import { readWebhooksOptions, type WebhooksOptions } from "./webhooks/options.ts";
import type { WebhookJob } from "./webhooks/sending/jobs.ts";

/**
 * A sender of webhooks, on the Redis of a sluice. Every process that sends, or works, makes its own, with the same options.
 * It is closed with its sluice.
 *
 * @throws {@link InvalidOptionError} when an option can never work, or there are no keys for the secrets.
 * @throws {@link RedisRequiredError} when the sluice has no Redis.
 * @throws {@link ClosedError} when the sluice is closed.
 */
export function createWebhooks(sluice: Sluice, options: WebhooksOptions = {}): Webhooks {
  const where = "createWebhooks()";
  const parts = partsOf(where, sluice);
  const read = readWebhooksOptions(where, options);
  const { name, keepMs } = read;
  const { prefix, timeoutMs, logger, observing, onClose } = parts;
  const connection = parts.connect(where, name);
  try {
    return assembleWebhooks({
      where,
      options: read,
      connection,
      store: createRedisWebhooks(connection.client, { prefix, queue: name }),
      timeoutMs,
      logger,
      observing,
      openQueue: (perKey) =>
        sluice.queue<WebhookJob, undefined>(name, {
          bucket: sluice.bucket(name, { ...read.shared, perKey, breaker: false }),
          keepDone: { count: 10_000, forMs: 60_000 },
          keepFailed: { forMs: keepMs },
        }),
      startWorker: (queue, handler, given) => sluice.worker(queue, handler, given),
      onClose,
    });
  } catch (error) {
    connection.close();
    throw error;
  }
}

export type { WebhooksOptions, SecretsOf } from "./webhooks/options.ts";

export type { Webhooks, WebhookWorkerOptions } from "./webhooks/create-webhooks.ts";

export type { WebhookWorker } from "./webhooks/delivery/webhook-worker.ts";

export type { Endpoints, EndpointsPage, PutResult } from "./webhooks/endpoints/endpoints.ts";

export type {
  Ceiling,
  DisableEndpoint,
  EndpointRef,
  ListEndpoints,
  PutEndpoint,
  RotateSecret,
  SetLimits,
} from "./webhooks/endpoints/endpoint-options.ts";

export type {
  ListTenants,
  Tenant,
  TenantLimits,
  Tenants,
  TenantsPage,
} from "./webhooks/endpoints/tenants.ts";

export type { Endpoint, EndpointSettings } from "./webhooks/endpoints/record.ts";

export type { Condition, Filter } from "./webhooks/endpoints/wants.ts";

export type {
  BlockedEvent,
  DisabledEvent,
  EndpointEvent,
  ExhaustedEvent,
  FailingEvent,
  WebhookEvents,
} from "./webhooks/events.ts";

export type { LogPage, Message, MessageState, WebhookLog } from "./webhooks/log/log.ts";

export type {
  ExpungeOptions,
  ListAttempts,
  ListMessages,
  MessageRef,
  RecoverOptions,
  ReplayOptions,
  Span,
} from "./webhooks/log/log-options.ts";

export type { Attempt } from "./webhooks/delivery/attempt-entry.ts";

export type { Outcome } from "./webhooks/delivery/outcome.ts";

export type { BroadcastOptions, SentBroadcast } from "./webhooks/sending/broadcast.ts";

export type { SendOptions, SentMessage, TestOptions } from "./webhooks/sending/send.ts";

export {
  EndpointDisabledError,
  EndpointMissingError,
  MessageMissingError,
  SecretUnreadableError,
  WebhookVerificationError,
  type VerificationFailure,
} from "./core/stores/webhooks/errors.ts";

export {
  createKeyPair,
  createSecret,
  publicKeyOf,
  type SignatureStyle,
} from "./webhooks/signing/secrets.ts";

export { sign, type SignOptions } from "./webhooks/signing/sign.ts";

export {
  verify,
  type ReceivedHeaders,
  type VerifiedWebhook,
  type VerifyOptions,
} from "./webhooks/signing/verify.ts";

export { listen, type ListenForWebhooksOptions, type WebhookListener } from "./webhooks/listen.ts";
