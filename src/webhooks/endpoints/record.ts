import type { RateInput } from "../../core/limits/rate.ts";
import type { Disabled, EndpointName } from "../../stores/redis/scripts/webhooks/webhooks.ts";
import type { ClientCertificate } from "../guard/connector.ts";
import type { SignatureStyle } from "../signing/secrets.ts";
import type { Filter } from "./wants.ts";

/** The settings that the owner of an endpoint controls. */
export interface EndpointSettings {
  /** The destination: `https://`, or `http://` if the sender allows it. */
  readonly url: string;
  /** The types of events that it receives: `["invoice.*"]`. Defaults to all. */
  readonly types?: readonly string[] | undefined;
  /** A condition on the data of events: `{ "amount": { gt: 100 } }`. Defaults to none. */
  readonly filter?: Filter | undefined;
  /** The rate of calls to it. Defaults to the sender's `perEndpoint`. */
  readonly rate?: RateInput | undefined;
  /** The number of calls to it at once. Defaults to the sender's `perEndpoint`. */
  readonly concurrency?: number | undefined;
  /** The delay before each attempt, in ms: `[0, 5_000, 60_000]`. Defaults to the sender's. */
  readonly scheduleMs?: readonly number[] | undefined;
  /** The time limit of one attempt, 100 to 30,000 ms. Defaults to the sender's. */
  readonly timeoutMs?: number | undefined;
  /**
   * Whether messages are sent strictly in order. The next message is sent once the previous one is
   * delivered or given up. Defaults to false.
   */
  readonly ordered?: boolean | undefined;
  /**
   * The most ordered messages in one request, 2 to 100. Each request is then a batch. Defaults to
   * one message per request.
   */
  readonly batch?: number | undefined;
  /** Additional headers. They are encrypted like secrets. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** The format of the signature. Defaults to `"standard"`. */
  readonly signature?: SignatureStyle | undefined;
  /** The prefix of the header names of `"standard"`. Defaults to `"webhook"`. */
  readonly headerPrefix?: string | undefined;
  /** The client certificate for mutual TLS, both parts PEM. It is encrypted like secrets. */
  readonly certificate?: ClientCertificate | undefined;
  readonly description?: string | undefined;
  /** Up to 20 texts for your own use. */
  readonly metadata?: Readonly<Record<string, string>> | undefined;
}

/** An endpoint, without its secrets. */
export interface Endpoint extends Omit<EndpointSettings, "headers" | "certificate"> {
  /** The tenant of the endpoint. Undefined if the sender has only one. */
  readonly tenant: string | undefined;
  readonly id: string;
  /** The names of its headers. Their values are not shown. */
  readonly headers: readonly string[];
  readonly hasCertificate: boolean;
  /** The number of secrets that sign: 2 during a rotation, 0 if they are kept elsewhere. */
  readonly secrets: number;
  /** The number of messages in its line. Undefined if it is not ordered. */
  readonly waiting: number | undefined;
  /**
   * When and why it was disabled: `"failing"`, `"gone"` (it replied with 410), or the given reason.
   * Undefined if it is enabled.
   */
  readonly disabled: Disabled | undefined;
  /** When it was created, and last changed, in ms since 1970. */
  readonly createdAtMs: number;
  readonly changedAtMs: number;
}

/**
 * A secret, and the time until which it signs, in ms since 1970. Without a time, it signs
 * permanently.
 */
interface SealedSecret {
  readonly sealed: string;
  readonly untilMs?: number | undefined;
}

/** The stored form of an endpoint. Its encrypted values are bound to this endpoint and tenant. */
export interface EndpointRecord extends Omit<EndpointSettings, "headers" | "certificate"> {
  /** Distinguishes it from a later endpoint with the same id. */
  readonly born: string;
  /** The newest comes first. */
  readonly secrets: readonly SealedSecret[];
  readonly headers?: { readonly names: readonly string[]; readonly sealed: string } | undefined;
  readonly certificate?: string | undefined;
  readonly createdAtMs: number;
  readonly changedAtMs: number;
}

export function readRecord(text: string): EndpointRecord {
  return JSON.parse(text) as EndpointRecord;
}

/** The secrets that currently sign. */
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
