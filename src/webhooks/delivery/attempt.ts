/** One attempt: what is read before it, what is sent, and what comes of it. */
import { reasonOf } from "../../core/describe.ts";
import { InvalidOptionError } from "../../core/errors.ts";
import type { Logger } from "../../core/logger.ts";
import type { BegunAttempt, HealthSeen, WebhookStore } from "../../core/stores/webhooks/store.ts";
import type { Job } from "../../queue/job.ts";
import { createLru } from "../../throttle/lru.ts";
import { Discard } from "../../queue/worker/outcome.ts";
import type { JobContext } from "../../queue/worker/context.ts";
import { readRecord, secretsInForce, type EndpointRecord } from "../endpoints/record.ts";
import type { Sealing } from "../endpoints/sealing.ts";
import type { WebhookEvents } from "../events.ts";
import type { Attempt } from "./attempt-entry.ts";
import { keyOf } from "../names.ts";
import type { ReadWebhooksOptions } from "../options.ts";
import {
  jittered,
  OUR_TRIES,
  storeLater,
  type DeliveryJob,
  type DeliveryQueue,
} from "../sending/jobs.ts";
import { dataOf } from "../sending/message.ts";
import type { ClientCertificate } from "../guard/connector.ts";
import { readSecret, type SignatureStyle, type SigningKey } from "../signing/secrets.ts";
import { signWith } from "../signing/sign.ts";
import type { Delivered, Deliverer } from "./deliver.ts";
import { isEndpointsFault, wordsFor } from "./outcome.ts";

export interface AttemptParts {
  readonly store: WebhookStore;
  readonly queue: DeliveryQueue;
  readonly deliverer: Deliverer;
  readonly sealing: Sealing | undefined;
  readonly options: ReadWebhooksOptions;
  readonly logger: Logger;
  readonly tell: <Name extends keyof WebhookEvents>(name: Name, event: WebhookEvents[Name]) => void;
}

/** How much longer than one attempt others wait while it tries whether an endpoint is back. */
const PROBE_SLACK_MS = 5_000;
const MOST_OPEN_MS = 300_000;
/** Endpoints whose secrets stay open in this process. */
const MOST_KEYS = 10_000;
/** How many attempts of a message, and of an endpoint, are kept. */
const MOST_LOGGED = 1_000;
/** Answers by which an endpoint, or what stands before it, asks for less; and how long it is left alone without a `Retry-After`. */
const SLOW_DOWN: ReadonlySet<number | undefined> = new Set([429, 502, 504]);
const SLOW_MS = 1_000;

export function createAttempts(
  parts: AttemptParts,
): (job: Job<DeliveryJob>, context: Pick<JobContext, "signal" | "attempt">) => Promise<undefined> {
  const { store, queue, deliverer, sealing, options, logger, tell } = parts;
  const { isSingle, breaker } = options;

  const note = store.recorder({
    keepMs: options.keepMs,
    most: MOST_LOGGED,
    disableAfterMs: options.disableAfterMs,
    failures: breaker.failures,
    openMs: breaker.coolMs,
    mostOpenMs: MOST_OPEN_MS,
  });
  const signingKeys = createLru<SigningKey>(MOST_KEYS);

  async function attempt(
    job: DeliveryJob,
    { signal, attempt: tries }: Pick<JobContext, "signal" | "attempt">,
  ): Promise<void> {
    const { purpose } = job;
    const timeoutMs = options.timeoutMs;
    const begun = await store.begin(job, purpose === "send" ? timeoutMs + PROBE_SLACK_MS : 0);
    const { record: text, disabled, body, state, waitMs, nowMs } = begun;
    const record = text === undefined ? undefined : readRecord(text);
    // Removed, or replaced by another of its name.
    if (record === undefined || (job.born !== undefined && job.born !== record.born)) return;
    if (body === undefined)
      throw new Discard("The message is no longer kept, and was not delivered");
    if (purpose === "send" && state === "delivered") return;
    if (disabled !== undefined && purpose !== "replay") {
      await end(job, record, notSent(`The endpoint is disabled (${disabled.why}).`), "failed");
      throw new Discard(`The endpoint is disabled (${disabled.why}); enable and recover it`);
    }
    if (waitMs > 0) {
      await leaveAlone(job, waitMs);
      await storeLater(queue, job, { delayMs: waitMs, isHeld: true });
      return;
    }
    let delivered: Delivered;
    try {
      delivered = await deliverer.deliver(await requestOf(job, record, begun, nowMs), signal);
    } catch (error) {
      // What was to be sent could not be made: its secret cannot be read.
      delivered = notSent(wordsFor("ours", undefined), reasonOf(error));
    }
    await conclude(job, record, { delivered, isLast: tries >= OUR_TRIES && !signal.aborted });
  }

  /** The signature is of this moment: one that was made before the wait would be old. */
  async function requestOf(
    job: DeliveryJob,
    record: EndpointRecord,
    begun: BegunAttempt,
    nowMs: number,
  ): Promise<Parameters<Deliverer["deliver"]>[0]> {
    const { url, signature: style = "standard", headerPrefix, timeoutMs, certificate } = record;
    const whole = begun.body!;
    const body = style === "standard" ? whole : dataOf(begun.type, whole);
    const keys = await keysOf(job, record, nowMs);
    const signing = { id: job.message, at: new Date(), body, keys, style, headerPrefix };
    const extra = record.headers && open(record.headers.sealed, job);
    return {
      url,
      headers: {
        "user-agent": options.userAgent,
        ...(extra && lowerCased(JSON.parse(extra) as Record<string, string>)),
        "content-type": "application/json",
        "accept-encoding": "identity",
        ...signWith({ ...signing, type: begun.type }),
      },
      body: Buffer.from(body),
      timeoutMs: timeoutMs ?? options.timeoutMs,
      certificate:
        certificate === undefined
          ? undefined
          : (JSON.parse(open(certificate, job)) as ClientCertificate),
    };
  }

  function open(sealed: string, job: DeliveryJob): string {
    if (sealing !== undefined) return sealing.open(sealed, job);
    throw new Error("the endpoint has what was sealed with a key; give the sender keys again");
  }

  /** A secret is opened once as long as it is in use. */
  function signingKeyOf(sealed: string, job: DeliveryJob, style: SignatureStyle): SigningKey {
    const name = `${job.tenant}\0${job.endpoint}\0${style}\0${sealed}`;
    const known = signingKeys.get(name);
    if (known !== undefined) return known;
    const key = readSecret("secret", "secret", open(sealed, job), style);
    signingKeys.set(name, key);
    return key;
  }

  async function keysOf(
    job: DeliveryJob,
    record: EndpointRecord,
    nowMs: number,
  ): Promise<readonly SigningKey[]> {
    const { secretsOf } = options;
    const style = record.signature ?? "standard";
    if (secretsOf === undefined) {
      return secretsInForce(record, nowMs).map(({ sealed }) => signingKeyOf(sealed, job, style));
    }
    const tenant = isSingle ? undefined : job.tenant;
    const given = await secretsOf({ tenant, id: job.endpoint });
    const secrets = typeof given === "string" ? [given] : given;
    if (Array.isArray(secrets) && secrets.length > 0) {
      return secrets.map((each) => readSecret("secretsOf()", "secret", each, style));
    }
    const remedy = "return a secret, or several, the newest first";
    throw new InvalidOptionError({ where: "secretsOf()", option: "secret", value: given, remedy });
  }

  async function conclude(
    job: DeliveryJob,
    record: EndpointRecord,
    { delivered, isLast }: { readonly delivered: Delivered; readonly isLast: boolean },
  ): Promise<void> {
    const { outcome, status, retryAfterMs, detail } = delivered;
    if (outcome === "ours") {
      const reason = `It could not be sent: ${detail ?? "the sender failed"}`;
      if (isLast) throw await givenUp(job, record, { delivered, reason });
      await end(job, record, delivered, "waiting");
      // The queue tries it again, and this counts as no attempt at the endpoint.
      throw new Error(reason);
    }
    if (outcome === "blocked") {
      const where = detail ?? "its address";
      logger.warn({ ...nameIn(job), detail: where }, `A webhook was blocked: ${where}`);
      tell("blocked", { ...nameIn(job), detail: where });
    }
    if (outcome === "success") {
      await end(job, record, delivered, "delivered");
      return;
    }
    const schedule = record.scheduleMs ?? options.scheduleMs;
    const next = job.purpose === "test" || status === 410 ? undefined : schedule[job.attempt];
    if (next !== undefined) {
      const askedMs = Math.min(retryAfterMs ?? 0, options.maxRetryAfterMs);
      const delayMs = Math.max(jittered(next), askedMs);
      const { attempt: before } = job;
      // First the endpoint is left alone, if it asked for that. This job ends last: whatever dies meanwhile, it comes again.
      await end(job, record, delivered, "waiting");
      await storeLater(queue, { ...job, born: record.born, attempt: before + 1 }, { delayMs });
      return;
    }
    const tried = `Not delivered after ${job.attempt} of ${schedule.length} attempts.`;
    const reason = `${tried} ${delivered.error ?? "It failed."}`;
    throw await givenUp(job, record, { delivered, reason });
  }

  /** Nothing tries it again by itself: it is a dead letter for this reason, and can be recovered. */
  async function givenUp(
    job: DeliveryJob,
    record: EndpointRecord,
    { delivered, reason }: { readonly delivered: Delivered; readonly reason: string },
  ): Promise<Discard> {
    await end(job, record, delivered, "failed");
    const met = delivered.error ?? "It failed.";
    tell("exhausted", { ...nameIn(job), message: job.message, reason: met });
    return new Discard(reason);
  }

  /** Records an attempt, and does what it means for its endpoint. */
  async function end(
    job: DeliveryJob,
    record: EndpointRecord,
    delivered: Delivered,
    state: string,
  ): Promise<void> {
    const { outcome, status, durationMs, answer, error, retryAfterMs } = delivered;
    const { endpoint, attempt, purpose, by } = job;
    const entry: Omit<Attempt, "message"> = {
      endpoint,
      atMs: Date.now(),
      attempt,
      purpose,
      outcome,
      status,
      durationMs: Math.round(durationMs),
      answer,
      error,
      by,
    };
    const counts = purpose === "send";
    const health: HealthSeen = !counts
      ? "same"
      : outcome === "success"
        ? "ok"
        : isEndpointsFault(outcome)
          ? "bad"
          : "same";
    const askedMs = Math.min(retryAfterMs ?? 0, options.maxRetryAfterMs);
    const isSlowed = SLOW_DOWN.has(status) || (retryAfterMs !== undefined && outcome !== "success");
    const noted = await note({
      tenant: job.tenant,
      endpoint,
      message: job.message,
      entry: JSON.stringify(entry),
      state,
      health,
      slowMs: isSlowed ? Math.ceil(Math.max(askedMs, SLOW_MS)) : 0,
      disable: status === 410 && counts ? "gone" : undefined,
    });
    if (noted.waitMs > 0) await leaveAlone(job, noted.waitMs);
    if (noted.event === "recovered") {
      await queue.bucket.resume({ key: keyOf(job) });
      tell("recovered", nameIn(job));
    } else if (noted.event === "disabled") {
      tell("disabled", { ...nameIn(job), why: status === 410 ? "gone" : "failing" });
    } else if (noted.event === "failing") {
      const sinceMs = noted.failingSinceMs;
      const disabledAtMs = sinceMs + options.disableAfterMs;
      tell("failing", { ...nameIn(job), sinceMs, disabledAtMs });
    }
  }

  /** No call of any process starts there; its jobs wait in their lane, and those of others pass. */
  async function leaveAlone(job: DeliveryJob, forMs: number): Promise<void> {
    await queue.bucket.pause({ key: keyOf(job), forMs: Math.max(1, Math.ceil(forMs)) });
  }

  function nameIn({ tenant, endpoint }: DeliveryJob): {
    tenant: string | undefined;
    endpoint: string;
  } {
    return { tenant: isSingle ? undefined : tenant, endpoint };
  }

  return async ({ data }, context) => {
    await attempt(data, context);
    return undefined;
  };
}

function notSent(error: string, detail: string = error): Delivered {
  const nothing = { status: undefined, retryAfterMs: undefined, durationMs: 0, answer: "" };
  return { outcome: "ours", ...nothing, error, detail };
}

/** One of a name that the sender sets itself counts once. */
function lowerCased(headers: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]),
  );
}
