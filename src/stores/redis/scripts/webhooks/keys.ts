/**
 * The keys of a sender of webhooks, beside those of its queue: `<prefix>:{<queue>}:hooks:…`. Of a tenant: `endpoints:<tenant>`,
 * `ids:…`, `disabled:…`, `messages:…`; of an endpoint: `health:<tenant>:<endpoint>`, `log:…`, `failed:…`, `line:…`, `line:state:…`; of a message:
 * `message:<tenant>:<id>`, `attempts:…`; of a broadcast: `broadcast:<id>`; of all: `versions`, `tenants`, `limits`, `limits:changed`, `limits:version`.
 */
import type { EndpointName, MessageName } from "../../../../core/stores/webhooks/store.ts";
import { baseOf, encoded, type QueueName } from "../keys.ts";

/** What a tenant has. */
type OfTenant = "endpoints" | "ids" | "disabled" | "messages" | "ends";
type OfEndpoint = "health" | "log" | "failed" | "line" | "line:state";
type OfMessage = "message" | "attempts";
type OfAll = "versions" | "tenants" | "limits" | "limits:changed" | "limits:version";

export interface WebhookKeys {
  /** How all of them begin. */
  readonly base: string;
  all(what: OfAll): string;
  tenant(what: OfTenant, tenant: string): string;
  endpoint(what: OfEndpoint, name: EndpointName): string;
  message(what: OfMessage, name: MessageName): string;
  broadcast(id: string): string;
}

export function webhookKeys(queue: QueueName): WebhookKeys {
  const base = `${baseOf(queue)}hooks:`;
  return {
    base,
    all: (what) => `${base}${what}`,
    tenant: (what, tenant) => `${base}${what}:${encoded(tenant)}`,
    endpoint: (what, { tenant, endpoint }) =>
      `${base}${what}:${encoded(tenant)}:${encoded(endpoint)}`,
    broadcast: (id) => `${base}broadcast:${encoded(id)}`,
    message: (what, { tenant, message }) => `${base}${what}:${encoded(tenant)}:${encoded(message)}`,
  };
}

/** Of an ordered endpoint: what waits for it, and how far that is. */
export function lineKeys(of: QueueName & EndpointName): readonly [line: string, state: string] {
  const keys = webhookKeys(of);
  return [keys.endpoint("line", of), keys.endpoint("line:state", of)];
}
