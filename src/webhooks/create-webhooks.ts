import { assertArgumentCount } from "../core/input/arguments.ts";
import { reasonOf } from "../core/describe.ts";
import { textOfKey, type Key } from "../core/key-path.ts";
import { createEmitter, type Emitter } from "../core/events/events.ts";
import { sampled, type Logger } from "../core/logger.ts";
import type { SteeringLog } from "../core/stores/insight/steering-log.ts";
import type { Observing } from "../core/events/observer.ts";
import type { RuledPolicy } from "../core/stores/insight/rules.ts";
import type { EndpointName, WebhookStore } from "../core/stores/webhooks/store.ts";
import type { Handler } from "../queue/worker/context.ts";
import type { WorkerOptions } from "../queue/worker/worker-options.ts";
import type { Worker } from "../queue/worker/worker.ts";
import { createAsk, type Ask, type AskedConnection } from "./asking.ts";
import { createAttempts } from "./delivery/attempt.ts";
import { createEnding } from "./delivery/ending.ts";
import { createLineAttempts } from "./delivery/line.ts";
import { createRequests } from "./delivery/request.ts";
import { createDeliverer } from "./delivery/deliver.ts";
import { createOwnLimits, type OwnLimits } from "./delivery/limits.ts";
import { warmUp } from "./delivery/warm-up.ts";
import { createWebhookWorker, type WebhookWorker } from "./delivery/webhook-worker.ts";
import { createEndpoints, type Endpoints } from "./endpoints/endpoints.ts";
import { createTenants, type Tenants } from "./endpoints/tenants.ts";
import { readRecord } from "./endpoints/record.ts";
import { createSealing } from "./endpoints/sealing.ts";
import { createJudge, type JudgeAddress } from "./guard/addresses.ts";
import { EVENT_NAMES, type WebhookEvents } from "./events.ts";
import { createLog, type WebhookLog } from "./log/log.ts";
import { createEndpointStatuses, type EndpointStatuses } from "./log/status.ts";
import { createTenantOf, keyOf } from "./names.ts";
import type { ReadWebhooksOptions } from "./options.ts";
import { createBroadcasting, type Broadcasting } from "./sending/broadcast.ts";
import { createFanOut } from "./sending/fan-out.ts";
import { storeStep, type DeliveryQueue, type WebhookJob } from "./sending/jobs.ts";
import { createSending, type Sending } from "./sending/send.ts";
import type { OwnedBucket } from "../throttle/bucket.ts";
import { makesNoCalls } from "../throttle/slot/job-slot.ts";

/** Sends webhooks to the endpoints of tenants. Its events are those that this process's workers met. */
export interface Webhooks
  extends Sending, Broadcasting, WebhookLog, EndpointStatuses, Emitter<WebhookEvents> {
  readonly endpoints: Endpoints;
  readonly tenants: Tenants;
  /** The queue that its attempts wait in, to look at and to steer; its jobs are the sender's own. */
  readonly queue: DeliveryQueue;
  /**
   * Starts to send. Give `concurrency` as many calls as may wait for slow endpoints at once; it defaults to 250.
   *
   * @throws {@link InvalidOptionError} when an option can never work.
   * @throws {@link ClosedError} when the sluice is closed.
   */
  worker(options?: WebhookWorkerOptions): WebhookWorker;
}

/** What `worker` of a sender takes. */
export type WebhookWorkerOptions = Pick<
  WorkerOptions,
  "concurrency" | "closeDeadlineMs" | "patienceMs" | "lockMs"
>;

/** What a sender needs of its sluice. */
export interface WebhooksParts {
  readonly where: string;
  readonly options: ReadWebhooksOptions;
  readonly connection: AskedConnection & { close(): void };
  readonly store: WebhookStore;
  /** What rules say of its endpoints. */
  readonly readRules: () => Promise<RuledPolicy | undefined>;
  readonly log: SteeringLog;
  readonly timeoutMs: number;
  readonly logger: Logger;
  readonly observing: Observing;
  /** Opens the queue on a bucket with the limits of all, of each tenant and of each endpoint. */
  readonly openQueue: (perKey: OwnLimits["perKey"]) => DeliveryQueue;
  readonly startWorker: (
    queue: DeliveryQueue,
    handler: Handler<WebhookJob, undefined>,
    options: WorkerOptions,
  ) => Worker<WebhookJob, undefined>;
  /** Called when the sluice closes, before its workers do. */
  readonly onClose: (close: () => Promise<void>) => void;
}

export function assembleWebhooks(parts: WebhooksParts): Webhooks {
  const { where, options, connection, store, log, timeoutMs } = parts;
  const { name, isSingle, http, allow, operator } = options;
  const logger = sampled(parts.logger, () => performance.now());
  const sealing =
    options.secretsOf !== undefined && options.keys === undefined
      ? undefined
      : createSealing(where, options.keys);
  let isClosed = false;
  const ask = createAsk(connection, {
    timeoutMs,
    isClosed: () => isClosed,
    what: `The webhook sender "${name}"`,
  });
  const tenantOf = createTenantOf(isSingle);
  const limits = createOwnLimits(
    { limitsSince: (version) => ask(() => store.limitsSince(version)), readRules: parts.readRules },
    options,
  );
  const queue = parts.openQueue(limits.perKey);
  const bucket = queue.bucket as OwnedBucket;
  const { observing } = parts;
  const deliverer = createDeliverer({ ...options, connectMs: CONNECT_MS, observing });
  const emitter = createEmitter<WebhookEvents>(`the webhook sender "${name}"`, EVENT_NAMES, logger);
  const fanOut = createFanOut({ ...options, store, ask, queue });
  const sending = createSending({ fanOut, tenantOf, logger });
  const workers = new Set<WebhookWorker>();
  if (allow.length > 0) {
    const text = `The webhook sender "${name}" may send to private addresses: ${allow.join(", ")}`;
    parts.logger.warn({ allow }, text);
  }
  if (http) parts.logger.warn({ http }, `The webhook sender "${name}" may send without TLS.`);

  function tell<Name extends keyof WebhookEvents>(event: Name, facts: WebhookEvents[Name]): void {
    emitter.emit(event, facts);
    const type = TOLD[event];
    if (operator === undefined || type === undefined || facts.tenant === operator) return;
    sending.send({ tenant: operator, type, data: facts }).catch((error: unknown) => {
      const reason = reasonOf(error);
      logger.error({ event, reason }, `The operator could not be told of an event: ${reason}`);
    });
  }

  /** What waits in this process for any old limits looks at the new ones; others read the rules themselves. */
  function askAgain(key?: string): void {
    bucket.changed(key);
  }

  /** What waits in this process for the old limits of tenants and endpoints looks at the new ones. */
  function askAgainFor(keys: readonly string[]): void {
    if (keys.length > MOST_NAMED) askAgain();
    else for (const key of keys) askAgain(key);
  }

  /** Whether a key has limits of its own. */
  async function isLimited(key: Key): Promise<boolean> {
    return (await bucket.peek({ key })).limits.some(({ scope }) => scope === "key");
  }

  /** Goes on with an endpoint at once; also where a tool has removed the job of its line. */
  async function resume(name: EndpointName, most: number): Promise<void> {
    await bucket.hold(keyOf(name), 0);
    const step = await ask(() => store.lineStep(name));
    if (step !== undefined) await storeStep(queue, { ...name, step, most });
  }

  /** A process without this code has enabled an endpoint. */
  async function resumeFor(key: Key): Promise<void> {
    const [tenant, endpoint] = key as readonly [string, string];
    const name = { tenant, endpoint };
    const { record } = await ask(() => store.endpoint(name));
    if (record === undefined || !(await isLimited(key))) return;
    await resume(name, readRecord(record).batch ?? 1);
  }

  const ending = createEnding({ store, queue, options, logger, tell });
  const sendRequest = createRequests({ deliverer, sealing, options });
  const attempts = { store, queue, sendRequest, ending, options, logger, tell };
  const attempt = createAttempts(attempts);
  const attemptLine = createLineAttempts(attempts);
  const handler = makesNoCalls<Handler<WebhookJob, undefined>>(async ({ data }, context) => {
    await ("step" in data ? attemptLine(data, context) : attempt(data, context));
    return undefined;
  });
  parts.onClose(async () => {
    await Promise.all([...workers].map((worker) => worker.close()));
    isClosed = true;
    limits.stop();
    await deliverer.close();
    connection.close();
  });

  const webhooks: Webhooks = {
    ...sending,
    ...createBroadcasting({ ...options, store, ask, fanOut, tenantOf, logger }),
    ...createLog({ store, ask, queue, tenantOf, log }),
    ...createEndpointStatuses({ ...parts, ask, tenantOf, code: options }),
    endpoints: createEndpoints({
      ...options,
      targets: { http, judge: judgeOf(options) },
      log,
      store,
      ask,
      tenantOf,
      sealing,
      resume,
    }),
    tenants: createTenants({ name, log, store, ask, isSingle }),
    queue,
    worker(given) {
      const worker = createWebhookWorker(given, {
        async ready() {
          await Promise.all([
            limits.follow(logger, {
              onChange: askAgainFor,
              onWake: resumeFor,
              onRules: () => askAgain(),
            }),
            warmUp(),
          ]);
        },
        start: (read) => parts.startWorker(queue, handler, read),
        onClosed: () => workers.delete(worker),
      });
      workers.add(worker);
      return worker;
    },
    on: (event, listener, listening) => emitter.on(event, listener, listening),
    off: (event, listener) => emitter.off(event, listener),
  };
  return assertArgumentCount(webhooks, { throws: ["worker", "on", "off"] });
}

/**
 * A sender as processes see it that have not its options: they look and steer, and send nothing. What they enable, its
 * workers go on with within a second.
 */
export interface FoundWebhooks extends Pick<WebhookLog, "messages" | "attempts">, EndpointStatuses {
  /** The tenant of a sender with one tenant only is called `"only"` here. */
  readonly endpoints: Pick<Endpoints, "get" | "list" | "disable" | "enable" | "remove" | "undo">;
  readonly tenants: Pick<Tenants, "get" | "list">;
  /** The queue that its attempts wait in. */
  readonly queue: DeliveryQueue;
}

export function assembleFound(
  given: Pick<WebhooksParts, "store" | "log" | "readRules"> & {
    readonly ask: Ask;
    readonly queue: DeliveryQueue;
  },
): FoundWebhooks {
  const parts = { ...given, name: given.queue.name };
  const tenantOf = createTenantOf(false);
  const endpoints = createEndpoints({
    ...parts,
    tenantOf,
    isSingle: false,
    targets: { http: true },
    ceiling: {},
    sealing: undefined,
    secretsOf: undefined,
    // Only the sender's code knows the limits of its keys, so its workers do it.
    resume: (name) => parts.ask(() => parts.store.wake(textOfKey(keyOf(name)))),
  });
  const tenants = createTenants({ ...parts, isSingle: false });
  const log = createLog({ ...parts, tenantOf });
  return assertArgumentCount({
    endpoints: {
      get: (ref) => endpoints.get(ref),
      list: (options) => endpoints.list(options),
      disable: (ref, byHand) => endpoints.disable(ref, byHand),
      enable: (ref, byHand) => endpoints.enable(ref, byHand),
      remove: (ref, byHand) => endpoints.remove(ref, byHand),
      undo: (options) => endpoints.undo(options),
    },
    tenants: {
      get: (tenant) => tenants.get(tenant),
      list: (options) => tenants.list(options),
    },
    messages: log.messages,
    attempts: log.attempts,
    ...createEndpointStatuses({ ...parts, tenantOf, code: UNKNOWN_LIMITS }),
    queue: parts.queue,
  });
}

/** Undefined where all goes through a proxy, which judges the addresses. */
function judgeOf({ proxy, allow }: ReadWebhooksOptions): JudgeAddress | undefined {
  return proxy === undefined ? createJudge(allow) : undefined;
}

/** Only the sender's code knows them. */
const UNKNOWN_LIMITS = { perTenant: {}, perEndpoint: {}, ceiling: {} };

/** Of more keys than this that have changed, all calls look at their limits: that is quicker than one key after another. */
const MOST_NAMED = 100;

/** For the look-up, the connection and TLS. */
const CONNECT_MS = 5_000;

/** The events that the operator's endpoints are told of, and their types. */
const TOLD: Partial<Record<keyof WebhookEvents, string>> = {
  failing: "endpoint.failing",
  disabled: "endpoint.disabled",
  recovered: "endpoint.recovered",
  exhausted: "message.exhausted",
};
