import { types } from "node:util";
import type { OwnedBucket } from "../bucket.ts";

/** Where clients keep how often they retry: OpenAI's and Anthropic's, Stripe's, Slack's, and the parts of these. */
const PLACES: readonly (readonly string[])[] = [
  ["maxRetries"],
  ["_client", "maxRetries"],
  ["_api", "maxNetworkRetries"],
  ["_stripe", "_api", "maxNetworkRetries"],
  ["retryConfig", "retries"],
];

const warned = new WeakSet<object>();

/** Warns once for each bucket of a client that retries by itself: those calls would leave without slots. */
export function warnOfOwnRetries(client: object, bucket: object): void {
  const { logger, name } = bucket as Partial<Pick<OwnedBucket, "logger" | "name">>;
  if (logger === undefined || warned.has(bucket)) return;
  for (const place of PLACES) {
    const retries = valueAt(client, place);
    if (typeof retries !== "number" || !(retries > 0)) continue;
    warned.add(bucket);
    const option = place.at(-1)!;
    const remedy = `set ${option} to 0, or give the client the bucket's fetch (docs/feedback.md)`;
    const problem = `a client that retries by itself (${option}: ${retries}), and its retries take no slots; ${remedy}. This is said once.`;
    logger.warn({ bucket: name, [option]: retries }, `throttledClient() wraps ${problem}`);
    return;
  }
}

/** The value at a path of plain properties; undefined where a getter or a Proxy is on it, which may have effects. */
function valueAt(client: object, path: readonly string[]): unknown {
  let at: unknown = client;
  for (const name of path) {
    if (typeof at !== "object" || at === null || types.isProxy(at)) return undefined;
    at = Reflect.getOwnPropertyDescriptor(at, name)?.value;
  }
  return at;
}
