import type { Agent } from "undici";
import type { Key } from "../../core/key-path.ts";
import type { Bucket } from "../../throttle/bucket.ts";
import type { ThrottledFetch } from "../../throttle/call-options.ts";
import { sendExchange, type Exchange, type ExchangeInit, type Pending } from "./exchange.ts";
import type { Wish } from "./wish.ts";

/** Sends requests on the slots of their buckets. */
export interface Fetches {
  send(
    bucket: Bucket,
    exchange: Exchange,
    how: Wish & { readonly tries: number },
  ): Promise<Response>;
  /** From now on, nothing is tried again. */
  close(): void;
}

/** Each wish makes a `fetch` of its own: of more, all are forgotten. */
const MOST_KEPT = 1_000;

export function createFetches(agent: Agent): Fetches {
  const made = new WeakMap<Bucket, Map<string, ThrottledFetch>>();
  const pendingOf = new WeakMap<Response, Pending>();
  let isClosing = false;

  async function sendNow(_url: unknown, init?: RequestInit): Promise<Response> {
    const { exchange } = init as ExchangeInit;
    const response = await sendExchange(agent, init as ExchangeInit);
    pendingOf.set(response, exchange.pending);
    return response;
  }

  /** It may wait for another slot now, and can be refused meanwhile. */
  function retry(response: Response): boolean | undefined {
    if (isClosing) return false;
    const pending = pendingOf.get(response);
    if (pending !== undefined) pending.isWaiting = true;
    return undefined;
  }

  function key(_url: unknown, init?: RequestInit): Key | undefined {
    return (init as ExchangeInit).exchange.key;
  }

  function fetchOf(bucket: Bucket, wish: Wish & { readonly tries: number }): ThrottledFetch {
    const { maxWaitMs, priority, tries } = wish;
    const kept = made.get(bucket) ?? new Map<string, ThrottledFetch>();
    made.set(bucket, kept);
    const name = `${maxWaitMs} ${priority} ${tries}`;
    const found = kept.get(name);
    if (found !== undefined) return found;
    if (kept.size >= MOST_KEPT) kept.clear();
    const fetch = bucket.fetch.with({ fetch: sendNow, key, maxWaitMs, priority, tries, retry });
    kept.set(name, fetch);
    return fetch;
  }

  return {
    send(bucket, exchange, how) {
      const { method, origin, path, body, pending } = exchange;
      const { signal } = pending.ending;
      // The bucket reads address and body, and passes all on to what sends it.
      const init = { method, body: body ?? null, signal, exchange } as unknown as RequestInit;
      return fetchOf(bucket, how)(`${origin}${path}`, init);
    },
    close() {
      isClosing = true;
    },
  };
}
