import { readName } from "../core/input/options.ts";
import { settingName } from "../core/stores/insight/rules.ts";
import type { InsightStore } from "../core/stores/insight/store.ts";
import { createRedisWebhooks } from "../stores/redis/webhooks/store.ts";
import type { Sluice } from "../sluice/create-sluice.ts";
import { partsOf } from "../sluice/parts.ts";
import type { OwnedBucket } from "../throttle/bucket.ts";
import {
  askEach,
  assembleFound,
  assembleWebhooks,
  createAsk,
  type FoundWebhooks,
  type Webhooks,
  type WebhooksParts,
} from "./create-webhooks.ts";
import { readWebhooksOptions, type WebhooksOptions } from "./options.ts";
import type { WebhookJob } from "./sending/jobs.ts";

/**
 * Creates a webhook sender on the Redis of a sluice. Every process that sends or works creates the
 * sender with the same options. The sender closes with its sluice.
 *
 * @throws {@link InvalidOptionError} when an option can never work, or there are no keys for the
 * secrets.
 * @throws {@link RedisRequiredError} when the sluice has no Redis.
 * @throws {@link ClosedError} when the sluice is closed.
 */
export function createWebhooks(sluice: Sluice, options: WebhooksOptions = {}): Webhooks {
  const where = "createWebhooks()";
  const parts = partsOf(where, sluice);
  const read = readWebhooksOptions(where, options);
  const { name, keepMs } = read;
  const { prefix, timeoutMs, logger, observing, changeLog: log } = parts;
  const { onClose, expectWorker } = parts;
  parts.noteSender(name);
  const connection = parts.connect(where, name);
  try {
    return assembleWebhooks({
      where,
      options: read,
      connection,
      store: createRedisWebhooks(connection.client, { prefix, queue: name }),
      readRules: rulesReader(parts.insight, name),
      handleWarnings: createWarningsHandler(sluice),
      log,
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
      expectWorker,
      onClose,
    });
  } catch (error) {
    connection.close();
    throw error;
  }
}

/**
 * Finds a sender that other processes declare, to inspect and steer its endpoints and its log. The
 * caller needs neither the sender's options nor its keys. Returns undefined if no process had such
 * a sender open in the last 30 days.
 *
 * @throws {@link InvalidOptionError} when the name can never work.
 * @throws {@link StoreUnavailableError} when Redis gave no answer in time.
 * @throws {@link ClosedError} when the sluice is closed.
 */
export async function findWebhooks(
  sluice: Sluice,
  name: string = "webhooks",
): Promise<FoundWebhooks | undefined> {
  const where = "findWebhooks()";
  const { prefix, timeoutMs, insight, changeLog: log, connect, onClose } = partsOf(where, sluice);
  const queue = await sluice.findQueue<WebhookJob, undefined>(readName(where, "name", name));
  const isSender = (await insight.queue(name))?.declared.isSender === true;
  if (queue === undefined || !isSender) return undefined;
  const byName = finders.get(sluice) ?? new Map<string, Looker>();
  finders.set(sluice, byName);
  let looker = byName.get(name);
  if (looker === undefined) {
    let isClosed = false;
    const connection = connect(where, name);
    onClose(async () => {
      isClosed = true;
      connection.close();
    });
    const what = `The webhook sender "${name}"`;
    const ask = createAsk(connection, { timeoutMs, isClosed: () => isClosed, what });
    looker = {
      store: askEach(ask, createRedisWebhooks(connection.client, { prefix, queue: name })),
      readRules: () => ask(rulesReader(insight, name)),
    };
    byName.set(name, looker);
  }
  return assembleFound({ ...looker, queue, log });
}

/**
 * Lists the names of the senders that were open in the last 30 days, sorted by name.
 *
 * @throws {@link StoreUnavailableError} when Redis gave no answer in time.
 */
export async function listWebhooks(sluice: Sluice): Promise<readonly string[]> {
  const { insight } = partsOf("listWebhooks()", sluice);
  const names: string[] = [];
  for (let after = ""; ;) {
    const { queues } = await insight.queues({ after, limit: QUEUES_AT_ONCE });
    names.push(...queues.filter(({ declared }) => declared.isSender).map(({ name }) => name));
    if (queues.length < QUEUES_AT_ONCE) return names;
    after = queues.at(-1)!.name;
  }
}

function rulesReader(insight: InsightStore, name: string) {
  return async () => (await insight.ruledOf([settingName("endpoints", name)]))[0];
}

/** Returns a function that finds a bucket once, and passes its logged warnings on. */
function createWarningsHandler(sluice: Sluice): WebhooksParts["handleWarnings"] {
  const buckets = new Map<string, OwnedBucket>();
  return async (name, reader) => {
    const bucket = buckets.get(name) ?? ((await sluice.find(name)) as OwnedBucket | undefined);
    if (bucket === undefined) return;
    buckets.set(name, bucket);
    await bucket.handleWarnings(reader);
  };
}

const QUEUES_AT_ONCE = 1_000;

type Looker = Omit<Parameters<typeof assembleFound>[0], "queue" | "log">;

/**
 * The connections to senders of other processes. Each name has one connection, which repeated
 * look-ups share.
 */
const finders = new WeakMap<Sluice, Map<string, Looker>>();

export type { WebhooksOptions, SecretsOf } from "./options.ts";

export type { FoundWebhooks, Webhooks, WebhookWorkerOptions } from "./create-webhooks.ts";

export type { EndpointLimit, EndpointStatus, EndpointStatuses } from "./log/status.ts";

export type { WebhookWorker } from "./delivery/webhook-worker.ts";

export type { UndoEndpointChange } from "./endpoints/endpoint-changes.ts";

export type { Endpoints, EndpointsPage, PutResult } from "./endpoints/endpoints.ts";

export type {
  Ceiling,
  DisableEndpoint,
  EndpointRef,
  ListEndpoints,
  PutEndpoint,
  RotateSecret,
  SetLimits,
} from "./endpoints/endpoint-options.ts";

export type {
  ListTenants,
  Tenant,
  TenantLimits,
  Tenants,
  TenantsPage,
} from "./endpoints/tenants.ts";

export type { Endpoint, EndpointSettings } from "./endpoints/record.ts";

export type { Condition, Filter } from "./endpoints/event-filter.ts";

export type {
  BlockedEvent,
  DisabledEvent,
  EndpointEvent,
  ExhaustedEvent,
  FailingEvent,
  WebhookEvents,
} from "./events.ts";

export type { LogPage, Message, MessageState, WebhookLog } from "./log/log.ts";

export type {
  ExpungeOptions,
  ListAttempts,
  ListMessages,
  MessageRef,
  RecoverOptions,
  ReplayOptions,
  Span,
} from "./log/log-options.ts";

export type { Attempt } from "./delivery/attempt-entry.ts";

export type { Outcome } from "./delivery/outcome.ts";

export { push, type PushOptions } from "./sending/push.ts";

export type {
  BudgetWarnings,
  BudgetWarningsOptions,
  WarningBucket,
} from "./sending/budget-warnings.ts";
export type { BroadcastOptions, SentBroadcast } from "./sending/broadcast.ts";

export type { SendOptions, SentMessage, TestOptions } from "./sending/send.ts";

export {
  EndpointDisabledError,
  EndpointMissingError,
  MessageMissingError,
  SecretUnreadableError,
  WebhookVerificationError,
  type VerificationFailure,
} from "./errors.ts";

export {
  createKeyPair,
  createSecret,
  publicKeyOf,
  type SignatureStyle,
} from "./signing/secrets.ts";

export { sign, type SignOptions } from "./signing/sign.ts";

export {
  verify,
  type ReceivedHeaders,
  type VerifiedWebhook,
  type VerifyOptions,
} from "./signing/verify.ts";

export { listen, type ListenForWebhooksOptions, type WebhookListener } from "./signing/listen.ts";
