import type { RateInput } from "../../core/limits/rate.ts";
import type { Disabled, EndpointName } from "../../stores/redis/scripts/webhooks/webhooks.ts";
import type { ClientCertificate } from "../guard/connector.ts";
import type { SignatureStyle } from "../signing/secrets.ts";
import type { Filter } from "./event-filter.ts";

/** The settings that the owner of an endpoint controls. */
export interface EndpointSettings {
  /** The destination: `https://`, or `http://` if the sender allows it. */
  readonly url: string;
  /** The event types that the endpoint receives: `["invoice.*"]`. Defaults to all. */
  readonly types?: readonly string[] | undefined;
  /** A condition on the event data: `{ "amount": { gt: 100 } }`. Defaults to none. */
  readonly filter?: Filter | undefined;
  /** The rate of calls to the endpoint. Defaults to the sender's `perEndpoint`. */
  readonly rate?: RateInput | undefined;
  /** The number of simultaneous calls to the endpoint. Defaults to the sender's `perEndpoint`. */
  readonly concurrency?: number | undefined;
  /**
   * The delay before each attempt, in ms: `[0, 5_000, 60_000]`. Defaults to the sender's
   * `scheduleMs`.
   */
  readonly scheduleMs?: readonly number[] | undefined;
  /** The time limit of one attempt, 100 to 30,000 ms. Defaults to the sender's `timeoutMs`. */
  readonly timeoutMs?: number | undefined;
  /**
   * Whether messages are sent strictly in order. Each message then waits until the previous message
   * is delivered or given up. Defaults to false.
   */
  readonly ordered?: boolean | undefined;
  /**
   * The maximum number of ordered messages in one request, 2 to 100. Each request is then a batch.
   * Defaults to one message per request.
   */
  readonly batch?: number | undefined;
  /** Additional headers. They are encrypted like secrets. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** The format of the signature. Defaults to `"standard"`. */
  readonly signature?: SignatureStyle | undefined;
  /** The prefix of the header names in the format `"standard"`. Defaults to `"webhook"`. */
  readonly headerPrefix?: string | undefined;
  /**
   * The client certificate for mutual TLS, with both parts as PEM. It is encrypted like secrets.
   */
  readonly certificate?: ClientCertificate | undefined;
  readonly description?: string | undefined;
  /** Up to 20 texts for your own use. */
  readonly metadata?: Readonly<Record<string, string>> | undefined;
}

/** An endpoint, without its secrets. */
export interface Endpoint extends Omit<EndpointSettings, "headers" | "certificate"> {
  /** The tenant of the endpoint. Undefined if the sender has only one tenant. */
  readonly tenant: string | undefined;
  readonly id: string;
  /** The names of the additional headers. Their values are not shown. */
  readonly headers: readonly string[];
  readonly hasCertificate: boolean;
  /**
   * The number of secrets that sign: 2 during a rotation, 0 if secrets are stored outside Redis.
   */
  readonly secrets: number;
  /** The number of messages in the endpoint's line. Undefined if the endpoint is not ordered. */
  readonly waiting: number | undefined;
  /**
   * When and why the endpoint was disabled: `"failing"`, `"gone"` (it replied with 410), or the
   * given reason. Undefined if the endpoint is enabled.
   */
  readonly disabled: Disabled | undefined;
  /** The times of creation and of the last change, in ms since 1970. */
  readonly createdAtMs: number;
  readonly changedAtMs: number;
}

/**
 * A secret, and the time in ms since 1970 until which the secret signs. Without a time, the secret
 * signs permanently.
 */
interface SealedSecret {
  readonly sealed: string;
  readonly untilMs?: number | undefined;
}

/** The stored form of an endpoint. Each encrypted value is bound to this endpoint and tenant. */
export interface EndpointRecord extends Omit<EndpointSettings, "headers" | "certificate"> {
  /** Distinguishes this endpoint from a later endpoint with the same id. */
  readonly born: string;
  /** The encrypted secrets, the newest first. */
  readonly secrets: readonly SealedSecret[];
  readonly headers?: { readonly names: readonly string[]; readonly sealed: string } | undefined;
  readonly certificate?: string | undefined;
  readonly createdAtMs: number;
  readonly changedAtMs: number;
}

export function readRecord(text: string): EndpointRecord {
  return JSON.parse(text) as EndpointRecord;
}

/** Returns the secrets that currently sign. */
export function secretsInForce(
  { secrets }: EndpointRecord,
  nowMs: number,
): readonly SealedSecret[] {
  return secrets.filter(({ untilMs = Infinity }) => untilMs > nowMs);
}

export function endpointOf(
  record: EndpointRecord,
  facts: {
    readonly name: EndpointName;
    readonly isSingle: boolean;
    readonly disabled: Disabled | undefined;
    readonly waiting: number | undefined;
  },
): Endpoint {
  const { born: _born, secrets: _secrets, headers, certificate, ...settings } = record;
  const { tenant, endpoint: id } = facts.name;
  return {
    tenant: facts.isSingle ? undefined : tenant,
    id,
    ...settings,
    headers: headers?.names ?? [],
    hasCertificate: certificate !== undefined,
    secrets: secretsInForce(record, Date.now()).length,
    waiting: facts.waiting,
    disabled: facts.disabled,
  };
}
