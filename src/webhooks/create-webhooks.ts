import { createPayloads } from "../core/codec.ts";
import { assertArgumentCount } from "../core/input/arguments.ts";
import { reasonOf, messageOf } from "../core/describe.ts";
import { ClosedError, redisRefusalOf, SluiceError, StoreUnavailableError } from "../core/errors.ts";
import { encodeKey, type Key } from "../core/key-path.ts";
import { createEmitter, type Emitter } from "../core/events/events.ts";
import { sampled, type Logger } from "../core/logger.ts";
import type { ChangeLog } from "../core/stores/insight/change-log.ts";
import type { Observing } from "../core/events/observer.ts";
import type { RuledPolicy } from "../core/stores/insight/rules.ts";
import type { EndpointName } from "../stores/redis/scripts/webhooks/webhooks.ts";
import type { WebhookStore } from "../stores/redis/webhooks/store.ts";
import type { Handler } from "../queue/worker/context.ts";
import type { WorkerOptions } from "../queue/worker/worker-options.ts";
import type { Worker } from "../queue/worker/worker.ts";
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
import { createBudgetWarnings, type BudgetWarnings } from "./sending/budget-warnings.ts";
import { createBroadcasting, type Broadcasting } from "./sending/broadcast.ts";
import { createFanOut } from "./sending/fan-out.ts";
import { storeStep, type DeliveryQueue, type WebhookJob } from "./sending/jobs.ts";
import { withEncodedBodies } from "./sending/encoded-bodies.ts";
import { createSending, keepMessageRows, type Sending } from "./sending/send.ts";
import type { OwnedBucket } from "../throttle/bucket.ts";
import type { WarningsReader } from "../throttle/bucket/bucket-events.ts";
import { markWithoutCalls } from "../throttle/slot/job-slot.ts";

/**
 * Sends webhooks to the endpoints of tenants. It emits the events of the webhook workers in this
 * process.
 */
export interface Webhooks
  extends
    Sending,
    Broadcasting,
    BudgetWarnings,
    WebhookLog,
    EndpointStatuses,
    Emitter<WebhookEvents> {
  readonly endpoints: Endpoints;
  readonly tenants: Tenants;
  /**
   * The queue of delivery attempts, for inspection and control. Do not add jobs to this queue
   * yourself.
   */
  readonly queue: DeliveryQueue;
  /**
   * Starts sending. `concurrency` is the number of simultaneous attempts, including attempts at
   * slow endpoints. It defaults to 250.
   *
   * @throws {@link InvalidOptionError} when an option can never work.
   * @throws {@link ClosedError} when the sluice is closed.
   */
  worker(options?: WebhookWorkerOptions): WebhookWorker;
}

/** The options of a sender's `worker`. */
export type WebhookWorkerOptions = Pick<
  WorkerOptions,
  "concurrency" | "closeDeadlineMs" | "patienceMs" | "lockMs"
>;

/** The parts of a sluice that its webhook sender needs. */
export interface WebhooksParts {
  readonly where: string;
  readonly options: ReadWebhooksOptions;
  readonly connection: AskedConnection & { close(): void };
  readonly store: WebhookStore;
  /** Reads the active rules for the sender's endpoints. */
  readonly readRules: () => Promise<RuledPolicy | undefined>;
  /** Passes the logged warnings of a bucket's budgets on. Does nothing for an unknown bucket. */
  readonly handleWarnings: (bucket: string, reader: WarningsReader) => Promise<void>;
  readonly log: ChangeLog;
  readonly timeoutMs: number;
  readonly logger: Logger;
  readonly observing: Observing;
  /**
   * Opens the sender's queue. The queue's bucket has a total limit, per-tenant limits and
   * per-endpoint limits.
   */
  readonly openQueue: (perKey: OwnLimits["perKey"]) => DeliveryQueue;
  readonly startWorker: (
    queue: DeliveryQueue,
    handler: Handler<WebhookJob, undefined>,
    options: WorkerOptions,
  ) => Worker<WebhookJob, undefined>;
  /** Called with a promise that resolves once a worker has started. */
  readonly expectWorker: (starting: Promise<void>) => void;
  /** Registers a function that runs when the sluice closes, before its workers close. */
  readonly onClose: (close: () => Promise<void>) => void;
}

export function assembleWebhooks(parts: WebhooksParts): Webhooks {
  const { where, options, connection, log, timeoutMs } = parts;
  const { name, isSingle, http, allow, operator, devReceiver } = options;
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
  const payloads = createPayloads(name, options.codec);
  const store = withEncodedBodies(parts.store, payloads);
  // The time limit of a request to Redis does not include the codecs.
  const asked = withEncodedBodies(askEach(ask, parts.store), payloads);
  const tenantOf = createTenantOf(isSingle);
  const limits = createOwnLimits({ ...asked, readRules: parts.readRules }, options);
  const queue = parts.openQueue(limits.perKey);
  const bucket = queue.bucket as OwnedBucket;
  const { observing } = parts;
  const deliverer = createDeliverer({ ...options, connectMs: CONNECT_MS, observing });
  const emitter = createEmitter<WebhookEvents>(`the webhook sender "${name}"`, EVENT_NAMES, logger);
  const fanOut = createFanOut({ ...options, store: asked, queue });
  const sending = createSending({ fanOut, tenantOf, logger });
  const handleLogged = parts.handleWarnings;
  const warnings = createBudgetWarnings({ ...options, handleLogged, sending, tenantOf, logger });
  const workers = new Set<WebhookWorker>();
  if (allow.length > 0) {
    const text = `The webhook sender "${name}" may send to private addresses: ${allow.join(", ")}`;
    parts.logger.warn({ allow }, text);
  }
  if (devReceiver !== undefined) {
    const text = `The webhook sender "${name}" may send to ${devReceiver}, the receiver of sluice dev.`;
    parts.logger.warn({ devReceiver }, text);
  }
  if (http) parts.logger.warn({ http }, `The webhook sender "${name}" may send without TLS.`);

  function report<Name extends keyof WebhookEvents>(event: Name, facts: WebhookEvents[Name]): void {
    emitter.emit(event, facts);
    const type = OPERATOR_EVENTS[event];
    if (operator === undefined || type === undefined || facts.tenant === operator) return;
    sending.send({ tenant: operator, type, data: facts }).catch((error: unknown) => {
      const reason = reasonOf(error);
      logger.error(
        { event, reason },
        `An event was not sent to the operator's endpoints: ${reason}`,
      );
    });
  }

  /**
   * Rechecks pending calls in this process after any limit changed. Other processes read the rules
   * themselves.
   */
  function redraw(key?: string): void {
    bucket.changed(key);
  }

  /**
   * Rechecks pending calls in this process after the limits of some tenants or endpoints changed.
   */
  function redrawKeys(keys: readonly string[]): void {
    if (keys.length > MOST_NAMED) redraw();
    else for (const key of keys) redraw(key);
  }

  /** True if the key has its own limits. */
  async function isLimited(key: Key): Promise<boolean> {
    return (await bucket.peek({ key })).limits.some(({ scope }) => scope === "key");
  }

  /**
   * Resumes sending to an endpoint immediately. For an ordered endpoint, also stores the job of its
   * line again, in case a tool has removed that job.
   */
  async function resume(name: EndpointName, most: number): Promise<void> {
    await bucket.hold(keyOf(name), 0);
    const step = await asked.lineStep(name);
    if (step !== undefined) await storeStep(queue, { ...name, step, most });
  }

  /** Resumes sending to an endpoint that a process without the sender's code has enabled. */
  async function resumeFor(key: Key): Promise<void> {
    const [tenant, endpoint] = key as readonly [string, string];
    const name = { tenant, endpoint };
    const { record } = await asked.endpoint(name);
    if (record === undefined || !(await isLimited(key))) return;
    await resume(name, readRecord(record).batch ?? 1);
  }

  const ending = createEnding({ store, queue, options, logger, report });
  const sendRequest = createRequests({ deliverer, sealing, options });
  const attempts = { store, queue, sendRequest, ending, options, logger, report };
  const attempt = createAttempts(attempts);
  const attemptLine = createLineAttempts(attempts);
  const handler = markWithoutCalls<Handler<WebhookJob, undefined>>(async ({ data }, context) => {
    await ("step" in data ? attemptLine(data, context) : attempt(data, context));
    return undefined;
  });
  parts.onClose(async () => {
    await Promise.all([warnings.close(), ...[...workers].map((worker) => worker.close())]);
    isClosed = true;
    limits.stop();
    await deliverer.close();
    connection.close();
  });

  const webhooks: Webhooks = {
    ...sending,
    ...createBroadcasting({ ...options, store: asked, fanOut, tenantOf, logger }),
    sendBudgetWarnings: (of, given) => warnings.sendBudgetWarnings(of, given),
    ...createLog({ store: asked, queue, tenantOf, log }),
    ...createEndpointStatuses({
      store: asked,
      tenantOf,
      code: options,
      readRules: () => ask(parts.readRules),
    }),
    endpoints: createEndpoints({
      ...options,
      targets: { http, devReceiver, judge: judgeOf(options) },
      log,
      store: asked,
      tenantOf,
      sealing,
      resume,
    }),
    tenants: createTenants({ name, log, store: asked, isSingle }),
    queue,
    worker(given) {
      const worker = createWebhookWorker(given, {
        async ready() {
          await Promise.all([
            limits.follow(logger, {
              onChange: redrawKeys,
              onWake: resumeFor,
              onRules() {
                redraw();
                warnings.followRules(limits.rules.budgetWarnings);
              },
            }),
            warmUp(),
          ]);
          warnings.followRules(limits.rules.budgetWarnings);
        },
        start: (read) => parts.startWorker(queue, handler, read),
        onStarting: parts.expectWorker,
        onClosed: () => workers.delete(worker),
      });
      workers.add(worker);
      return worker;
    },
    on: (event, listener, listening) => emitter.on(event, listener, listening),
    off: (event, listener) => emitter.off(event, listener),
  };
  keepMessageRows(webhooks, { tenantOf, logger, payloads });
  return assertArgumentCount(webhooks, { throws: ["worker", "on", "off", "sendBudgetWarnings"] });
}

/**
 * A sender as seen by a process without the sender's options. Such a process inspects and steers
 * the sender, but sends nothing. When the process enables an endpoint, the sender's workers resume
 * sending to the endpoint within a second.
 */
export interface FoundWebhooks extends Pick<WebhookLog, "messages" | "attempts">, EndpointStatuses {
  /** A sender with a single tenant calls that tenant `"only"` here. */
  readonly endpoints: Pick<Endpoints, "get" | "list" | "disable" | "enable" | "remove" | "undo">;
  readonly tenants: Pick<Tenants, "get" | "list">;
  /** The queue of delivery attempts. */
  readonly queue: DeliveryQueue;
}

export function assembleFound(
  given: Pick<WebhooksParts, "store" | "log" | "readRules"> & {
    readonly queue: DeliveryQueue;
  },
): FoundWebhooks {
  const { name } = given.queue;
  const store = withEncodedBodies(given.store, createPayloads(name));
  const parts = { ...given, name, store };
  const tenantOf = createTenantOf(false);
  const endpoints = createEndpoints({
    ...parts,
    tenantOf,
    isSingle: false,
    targets: { http: true },
    ceiling: {},
    sealing: undefined,
    secretsOf: undefined,
    // Only the sender's code knows the per-key limits, so a worker of the sender resumes the
    // endpoint.
    resume: (name) => parts.store.wake({ key: encodeKey(keyOf(name)) }),
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

/**
 * Returns the function that decides which addresses are allowed. Returns undefined with a proxy,
 * because the proxy then decides.
 */
function judgeOf({ proxy, allow }: ReadWebhooksOptions): JudgeAddress | undefined {
  return proxy === undefined ? createJudge(allow) : undefined;
}

/** Empty limits, because only the sender's code knows the limits. */
const UNKNOWN_LIMITS = { perTenant: {}, perEndpoint: {}, ceiling: {} };

/** Above this number of changed keys, rechecking all calls is faster than rechecking key by key. */
const MOST_NAMED = 100;

/** The time limit for the DNS look-up, the connection and TLS together. */
const CONNECT_MS = 5_000;

/** The events that are sent to the operator's endpoints, with their webhook types. */
const OPERATOR_EVENTS: Partial<Record<keyof WebhookEvents, string>> = {
  failing: "endpoint.failing",
  disabled: "endpoint.disabled",
  recovered: "endpoint.recovered",
  exhausted: "message.exhausted",
};

/** Runs a request to Redis within the sluice's time limit. */
export type Ask = <Answer>(question: () => Promise<Answer>) => Promise<Answer>;

/** The connection that requests go through. */
export interface AskedConnection {
  untilReady(timeoutMs: number): Promise<void>;
  inTime<Answer>(timeoutMs: number, question: Promise<Answer>): Promise<Answer>;
}

/**
 * Creates a function that runs requests to Redis. It rejects with {@link StoreUnavailableError}
 * when Redis is unreachable, and with {@link ClosedError} once `isClosed` returns true.
 */
export function createAsk(
  connection: AskedConnection,
  { timeoutMs, isClosed, what }: { timeoutMs: number; isClosed: () => boolean; what: string },
): Ask {
  return async (question) => {
    if (isClosed()) throw new ClosedError(what);
    try {
      await connection.untilReady(timeoutMs);
      return await connection.inTime(timeoutMs, question());
    } catch (cause) {
      if (isClosed()) throw new ClosedError(what);
      if (cause instanceof SluiceError) throw cause;
      const refusal = redisRefusalOf(cause);
      const met = cause instanceof Error ? ` (${messageOf(cause)})` : "";
      const problem =
        refusal === undefined
          ? `Redis gave no answer within ${timeoutMs} ms${met}; it may or may not have done what it was asked`
          : `Redis refused it: ${refusal.reason}`;
      const remedy = refusal?.remedy ?? "See that Redis runs, and try again";
      throw new StoreUnavailableError(`${problem}. ${remedy}.`, cause);
    }
  };
}

/** Returns the same methods, but runs each call through `ask`. */
export function askEach<Methods extends object>(ask: Ask, methods: Methods): Methods {
  const asking = Object.entries(methods).map(
    ([name, method]: [string, (...given: unknown[]) => Promise<unknown>]) => [
      name,
      (...given: unknown[]) => ask(() => method(...given)),
    ],
  );
  return Object.fromEntries(asking) as Methods;
}
