/** Records the result of an attempt, updates the endpoint's health and informs the operator. */
import type { CodecError } from "../../core/errors.ts";
import type { Logger } from "../../core/logger.ts";
import type {
  EndpointName,
  HealthSeen,
  MessageCopy,
} from "../../stores/redis/scripts/webhooks/webhooks.ts";
import type { WebhookStore } from "../../stores/redis/webhooks/store.ts";
import type { OwnedBucket } from "../../throttle/bucket.ts";
import type { WebhookEvents } from "../events.ts";
import { keyOf } from "../names.ts";
import type { ReadWebhooksOptions } from "../options.ts";
import { jittered, type DeliveryQueue, type Purpose } from "../sending/jobs.ts";
import type { EndpointRecord } from "../endpoints/record.ts";
import type { Attempt } from "./attempt-entry.ts";
import type { Delivered } from "./deliver.ts";
import { isEndpointsFault, wordsFor } from "./outcome.ts";

/** One attempt to send a message to an endpoint. */
export interface Tried extends EndpointName, MessageCopy {
  readonly attempt: number;
  readonly purpose: Purpose;
  readonly by?: string | undefined;
  /** The time of the endpoint's last change, as read at the start of the attempt. */
  readonly changedAtMs: number;
}

export interface EndingParts {
  readonly store: WebhookStore;
  readonly queue: DeliveryQueue;
  readonly options: ReadWebhooksOptions;
  readonly logger: Logger;
  readonly report: <Name extends keyof WebhookEvents>(
    name: Name,
    event: WebhookEvents[Name],
  ) => void;
}

export interface Ending {
  /**
   * Records an attempt, and applies its result to the endpoint. Returns false if the endpoint was
   * removed during the attempt. If a request contains several messages, `countsOnce` is true for
   * only one of them.
   */
  end(
    tried: Tried,
    delivered: Delivered,
    state: DeliveryState,
    countsOnce?: boolean,
  ): Promise<boolean>;
  /** Logs the blocked destination for the operator. */
  noteBlocked(name: EndpointName, delivered: Delivered): void;
  /** Reports that a message will not be retried. */
  noteExhausted(tried: Tried, delivered: Delivered): void;
  /**
   * Pauses an endpoint in all processes. The endpoint's jobs wait in their lane while jobs of other
   * lanes run.
   */
  pauseEndpoint(name: EndpointName, forMs: number): Promise<void>;
  /**
   * Returns the delay before the next attempt, in ms. Returns undefined if there is no next
   * attempt.
   */
  nextInMs(
    tried: Pick<Tried, "purpose" | "attempt">,
    record: EndpointRecord,
    delivered: Delivered,
  ): number | undefined;
  /** Explains why a message is no longer retried. */
  reasonFor(tried: Tried, record: EndpointRecord, delivered: Delivered): string;
}

export type DeliveryState = "waiting" | "delivered" | "failed";

const MOST_OPEN_MS = 300_000;
/** The most attempts that the log keeps per message and per endpoint. */
const MOST_LOGGED = 1_000;
/**
 * The statuses with which an endpoint or its load balancer asks for fewer requests. `SLOW_MS` is
 * the pause if the reply has no `Retry-After`.
 */
const SLOW_DOWN: ReadonlySet<number | undefined> = new Set([429, 502, 504]);
const SLOW_MS = 1_000;
const GONE = 410;

export function createEnding(parts: EndingParts): Ending {
  const { store, queue, options, logger, report } = parts;
  const bucket = queue.bucket as OwnedBucket;
  const { isSingle, breaker, maxRetryAfterMs, disableAfterMs, keepMs } = options;

  function nameIn({ tenant, endpoint }: EndpointName): {
    tenant: string | undefined;
    endpoint: string;
  } {
    return { tenant: isSingle ? undefined : tenant, endpoint };
  }

  const rules = {
    keepMs,
    most: MOST_LOGGED,
    disableAfterMs,
    failures: breaker.failures,
    openMs: breaker.coolMs,
    mostOpenMs: MOST_OPEN_MS,
  };
  const askedMs = ({ retryAfterMs = 0 }: Delivered): number =>
    Math.min(retryAfterMs, maxRetryAfterMs);
  const scheduleOf = ({ scheduleMs = options.scheduleMs }: EndpointRecord): readonly number[] =>
    scheduleMs;

  async function pauseEndpoint(name: EndpointName, forMs: number): Promise<void> {
    await bucket.hold(keyOf(name), Math.max(1, Math.ceil(forMs)));
  }

  return {
    pauseEndpoint,
    async end(tried, delivered, state, countsOnce = true) {
      const { outcome, status, retryAfterMs } = delivered;
      const { tenant, endpoint, message, copy, purpose } = tried;
      const counts = purpose === "send" && countsOnce;
      const isSlowed =
        countsOnce &&
        (SLOW_DOWN.has(status) || (retryAfterMs !== undefined && outcome !== "success"));
      const noted = await store.end({
        ...rules,
        tenant,
        endpoint,
        message,
        copy,
        entry: JSON.stringify(entryOf(tried, delivered)),
        state,
        health: counts ? seenBy(delivered) : "same",
        slowMs: isSlowed ? Math.ceil(Math.max(askedMs(delivered), SLOW_MS)) : 0,
        disable: status === GONE && counts ? "gone" : undefined,
        changedAtMs: tried.changedAtMs,
      });
      if (noted.waitMs > 0) await pauseEndpoint(tried, noted.waitMs);
      if (noted.event === "recovered") {
        await bucket.hold(keyOf(tried), 0);
        report("recovered", nameIn(tried));
      } else if (noted.event === "disabled") {
        const reason = status === GONE ? "gone" : "failing";
        report("disabled", { ...nameIn(tried), reason, why: reason });
      } else if (noted.event === "failing") {
        const sinceMs = noted.failingSinceMs;
        report("failing", { ...nameIn(tried), sinceMs, disabledAtMs: sinceMs + disableAfterMs });
      }
      return noted.event !== "gone";
    },
    noteBlocked(name, { detail = "its address" }) {
      logger.warn({ ...nameIn(name), detail }, `A webhook was blocked: ${detail}`);
      report("blocked", { ...nameIn(name), detail });
    },
    noteExhausted(tried, { error = "It failed.", outcome, detail }) {
      const reason = outcome === "ours" ? (detail ?? error) : error;
      report("exhausted", { ...nameIn(tried), message: tried.message, reason });
    },
    nextInMs({ purpose, attempt }, record, delivered) {
      if (purpose === "test" || delivered.status === GONE) return undefined;
      const next = scheduleOf(record)[attempt];
      return next === undefined ? undefined : Math.max(jittered(next), askedMs(delivered));
    },
    reasonFor({ attempt }, record, { outcome, error = "It failed.", detail }) {
      if (outcome === "ours") return `It could not be sent: ${detail ?? "the sender failed"}`;
      return `Not delivered after ${attempt} of ${scheduleOf(record).length} attempts. ${error}`;
    },
  };
}

function entryOf(tried: Tried, delivered: Delivered): Omit<Attempt, "message"> {
  const { endpoint, attempt, purpose, by } = tried;
  const { outcome, status, durationMs, answer, error } = delivered;
  return {
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
}

/** Returns what a result means for the health of its endpoint. */
function seenBy({ outcome }: Delivered): HealthSeen {
  if (outcome === "success") return "ok";
  return isEndpointsFault(outcome) ? "bad" : "same";
}

/** Creates the result of an attempt whose request was never sent. */
export function notSent(error: string, detail: string = error): Delivered {
  const nothing = { status: undefined, retryAfterMs: undefined, durationMs: 0, answer: "" };
  return { outcome: "ours", ...nothing, error, detail };
}

/** Creates the result of an attempt whose message this process cannot decode. */
export function notDecoded(unreadable: CodecError): Delivered {
  return notSent(wordsFor("ours", undefined), unreadable.message);
}
