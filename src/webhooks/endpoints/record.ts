import type { RateInput } from "../../core/limits/rate.ts";
import type { Disabled, EndpointName } from "../../core/stores/webhooks/store.ts";
import type { ClientCertificate } from "../guard/connector.ts";
import type { SignatureStyle } from "../signing/secrets.ts";
import type { Filter } from "./wants.ts";

/** What the owner of an endpoint may set. */
export interface EndpointSettings {
  /** Where to send: `https://`, or `http://` if the sender was declared so. */
  readonly url: string;
  /** Which events it gets: `["invoice.*"]`. Defaults to all. */
  readonly types?: readonly string[] | undefined;
  /** What the data of an event must say: `{ "amount": { gt: 100 } }`. Defaults to nothing. */
  readonly filter?: Filter | undefined;
  /** How fast it is called. Defaults to the sender's `perEndpoint`. */
  readonly rate?: RateInput | undefined;
  /** How many calls it gets at once. Defaults to the sender's `perEndpoint`. */
  readonly concurrency?: number | undefined;
  /** The waits before each attempt, in ms: `[0, 5_000, 60_000]`. Defaults to the sender's. */
  readonly scheduleMs?: readonly number[] | undefined;
  /** How long one attempt may take, 100 to 30,000 ms. Defaults to the sender's. */
  readonly timeoutMs?: number | undefined;
  /**
   * Whether it gets its messages strictly one after another, in the order in which they were sent: the next one goes once
   * the one before was delivered or is given up. Defaults to false.
   */
  readonly ordered?: boolean | undefined;
  /** Up to how many of them go together, 2 to 100; then each request is a batch. Defaults to each by itself. */
  readonly batch?: number | undefined;
  /** More headers. They are kept as secrets are. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** How it is signed. Defaults to `"standard"`. */
  readonly signature?: SignatureStyle | undefined;
  /** What the names of the headers of `"standard"` begin with. Defaults to `"webhook"`. */
  readonly headerPrefix?: string | undefined;
  /** The certificate that it is shown (mutual TLS), both PEM. It is kept as secrets are. */
  readonly certificate?: ClientCertificate | undefined;
  readonly description?: string | undefined;
  /** Up to 20 texts of your own. */
  readonly metadata?: Readonly<Record<string, string>> | undefined;
}

/** An endpoint, without its secrets. */
export interface Endpoint extends Omit<EndpointSettings, "headers" | "certificate"> {
  /** The tenant that it belongs to; undefined where the sender has only one. */
  readonly tenant: string | undefined;
  readonly id: string;
  /** The names of its headers; what they say is not shown. */
  readonly headers: readonly string[];
  readonly hasCertificate: boolean;
  /** How many secrets sign: 2 while one is rotated, 0 if they are kept elsewhere. */
  readonly secrets: number;
  /** How many messages wait in its line; undefined if it is not ordered. */
  readonly waiting: number | undefined;
  /** Since when it is disabled, and why: `"failing"`, `"gone"` (it answered 410), or what was given. Undefined if it is not. */
  readonly disabled: Disabled | undefined;
  /** When it was put first, and last, in ms since 1970. */
  readonly createdAtMs: number;
  readonly changedAtMs: number;
}

/** A secret, and until when it signs, in ms since 1970; for good without that. */
interface SealedSecret {
  readonly sealed: string;
  readonly untilMs?: number | undefined;
}

/** What Redis has of an endpoint. Everything sealed belongs to this endpoint of this tenant alone. */
export interface EndpointRecord extends Omit<EndpointSettings, "headers" | "certificate"> {
  /** Tells it from a later endpoint of the same id. */
  readonly born: string;
  /** The newest first. */
  readonly secrets: readonly SealedSecret[];
  readonly headers?: { readonly names: readonly string[]; readonly sealed: string } | undefined;
  readonly certificate?: string | undefined;
  readonly createdAtMs: number;
  readonly changedAtMs: number;
}

export function readRecord(text: string): EndpointRecord {
  return JSON.parse(text) as EndpointRecord;
}

/** The secrets that still sign. */
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
