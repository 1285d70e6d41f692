/**
 * Builds one request to an endpoint from its current settings: URL, headers, certificate and
 * signature.
 */
import pTimeout from "p-timeout";
import { reasonOf } from "../../core/describe.ts";
import { InvalidOptionError } from "../../core/errors.ts";
import { createLru } from "../../throttle/lru.ts";
import type { EndpointName } from "../../stores/redis/scripts/webhooks/webhooks.ts";
import { secretsInForce, type EndpointRecord } from "../endpoints/record.ts";
import type { Sealing } from "../endpoints/sealing.ts";
import type { ClientCertificate } from "../guard/connector.ts";
import type { ReadWebhooksOptions } from "../options.ts";
import { readSecret, type SignatureStyle, type SigningKey } from "../signing/secrets.ts";
import { signWith } from "../signing/sign.ts";
import { dataOf } from "../sending/message.ts";
import type { Delivered, Deliverer } from "./deliver.ts";
import { notSent } from "./ending.ts";
import { wordsFor } from "./outcome.ts";
import { hiddenOf } from "./redact.ts";

type Request = Parameters<Deliverer["deliver"]>[0];

/** The content of one request. */
export interface RequestContent {
  readonly id: string;
  readonly type: string;
  readonly body: string;
}

/**
 * True if the endpoint uses the Standard Webhooks format. Endpoints with other styles get only the
 * data.
 */
export function isStandard({ signature = "standard" }: EndpointRecord): boolean {
  return signature === "standard";
}

/** Creates the content of a request for one message. */
export function contentOf(
  record: EndpointRecord,
  { id, type, body }: RequestContent,
): RequestContent {
  return { id, type, body: isStandard(record) ? body : dataOf(type, body) };
}

export interface RequestParts {
  readonly deliverer: Deliverer;
  readonly sealing: Sealing | undefined;
  readonly options: Pick<
    ReadWebhooksOptions,
    "isSingle" | "secretsOf" | "http" | "devReceiver" | "timeoutMs" | "userAgent"
  >;
}

/**
 * Signs and sends a request, and never rejects. The signature is created at the last moment,
 * because an earlier signature could expire.
 */
export type SendRequest = (
  name: EndpointName,
  record: EndpointRecord,
  content: RequestContent,
  at: { readonly nowMs: number; readonly signal: AbortSignal },
) => Promise<Delivered>;

type At = Parameters<SendRequest>[3];

const NO_TLS = "its URL is http://, and the sender is not declared with http: true";
/**
 * The time limit of the operator's function `secretsOf`. Without the limit, a function that never
 * returns would block the attempt forever.
 */
const SECRETS_MS = 5_000;
const UNSIGNED = "the endpoint has no secret; create one with rotateSecret()";
/** The most decrypted secrets that this process keeps. */
const MOST_KEYS = 10_000;

export function createRequests({ deliverer, sealing, options }: RequestParts): SendRequest {
  const { isSingle, secretsOf, http, devReceiver, userAgent } = options;
  const signingKeys = createLru<SigningKey>(MOST_KEYS);

  function open(sealed: string, { tenant, endpoint }: EndpointName): string {
    if (sealing !== undefined) return sealing.open(sealed, { tenant, endpoint });
    throw new Error("the endpoint has encrypted settings; give the sender its keys again");
  }

  /** Returns the key for an encrypted secret. Each secret is decrypted once and then cached. */
  function signingKeyOf(sealed: string, name: EndpointName, style: SignatureStyle): SigningKey {
    const text = `${name.tenant}\0${name.endpoint}\0${style}\0${sealed}`;
    const known = signingKeys.get(text);
    if (known !== undefined) return known;
    const key = readSecret("secret", "secret", open(sealed, name), style);
    signingKeys.set(text, key);
    return key;
  }

  async function keysOf(
    name: EndpointName,
    record: EndpointRecord,
    { nowMs, signal }: At,
  ): Promise<readonly SigningKey[]> {
    const style = record.signature ?? "standard";
    if (secretsOf === undefined) {
      const secrets = secretsInForce(record, nowMs);
      // The endpoint was created while secrets were stored outside Redis.
      if (secrets.length === 0) throw new Error(UNSIGNED);
      return secrets.map(({ sealed }) => signingKeyOf(sealed, name, style));
    }
    const tenant = isSingle ? undefined : name.tenant;
    const asking = (async () => secretsOf({ tenant, id: name.endpoint }))();
    const message = `secretsOf() returned nothing within ${SECRETS_MS} ms`;
    const given = await pTimeout(asking, { milliseconds: SECRETS_MS, signal, message });
    const secrets = typeof given === "string" ? [given] : given;
    if (Array.isArray(secrets) && secrets.length > 0) {
      return secrets.map((each) => readSecret("secretsOf()", "secret", each, style));
    }
    const remedy = "return a secret, or several, the newest first";
    throw new InvalidOptionError({ where: "secretsOf()", option: "secret", value: given, remedy });
  }

  async function make(
    name: EndpointName,
    record: EndpointRecord,
    { id, type, body }: RequestContent,
    at: At,
  ): Promise<Request> {
    const { url, signature: style = "standard", headerPrefix, timeoutMs, certificate } = record;
    const keys = await keysOf(name, record, at);
    const extra = record.headers && open(record.headers.sealed, name);
    const own = extra === undefined ? {} : (JSON.parse(extra) as Record<string, string>);
    const signature = signWith({ id, at: new Date(), body, keys, style, headerPrefix, type });
    return {
      url,
      headers: {
        "user-agent": userAgent,
        ...lowerCased(own),
        "content-type": "application/json",
        "accept-encoding": "identity",
        ...signature,
      },
      body: Buffer.from(body),
      timeoutMs: timeoutMs ?? options.timeoutMs,
      hidden: hiddenOf(own, signature),
      certificate:
        certificate === undefined
          ? undefined
          : (JSON.parse(open(certificate, name)) as ClientCertificate),
    };
  }

  return async (name, record, content, at) => {
    // Check the URL again, because the endpoint may have been created while `http` was allowed.
    const { protocol, origin } = new URL(record.url);
    if (!http && protocol === "http:" && origin !== devReceiver) {
      return { ...notSent(wordsFor("blocked", undefined), NO_TLS), outcome: "blocked" };
    }
    try {
      return await deliverer.deliver(await make(name, record, content, at), at.signal);
    } catch (error) {
      // The request could not be built, for example because the secret cannot be read.
      return notSent(wordsFor("ours", undefined), reasonOf(error));
    }
  };
}

/** Lower-cases the header names, so that a header which the sender also sets is not sent twice. */
function lowerCased(headers: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]),
  );
}
