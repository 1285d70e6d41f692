import type { Priority } from "../../../core/input/options.ts";
import type { Key } from "../../../core/key-path.ts";
import type { Bucket, OwnedBucket } from "../../../throttle/bucket.ts";
import type { ThrottledFetch } from "../../../throttle/call-options.ts";
import { createFetch, type AddressRequest } from "../../../throttle/wrap/fetch.ts";
import { watchMembers } from "../../../throttle/wrap/member-outcomes.ts";
import { sendExchange, type Exchange, type ExchangeInit } from "./exchange.ts";
import type { UpstreamResponse } from "./response.ts";

/** How long a request waits for a slot, and how often it is sent. */
interface How {
  readonly maxWaitMs: number | undefined;
  readonly priority: Priority | undefined;
  readonly tries: number;
  /** The members of a pool that have their own credentials. */
  readonly accounts: ReadonlySet<string>;
}

/** The `fetch` functions of one bucket, by their options. */
interface Kept {
  readonly fetch: ThrottledFetch;
  readonly fetches: Map<string, ThrottledFetch>;
}

/** Sends each request when its bucket has a slot. */
export interface Fetches {
  send(bucket: Bucket, exchange: Exchange, how: How): Promise<Response>;
  /** Disables retries, because the server closes. */
  close(): void;
}

/**
 * The most `fetch` functions that are kept. Each combination of options needs its own `fetch`.
 * Beyond this number, all of them are dropped.
 */
const MOST_KEPT = 1_000;

export function createFetches(): Fetches {
  const made = new WeakMap<Bucket, WeakMap<How["accounts"], Kept>>();
  let isClosing = false;

  async function sendNow(_url: unknown, init?: RequestInit): Promise<Response> {
    try {
      return await sendExchange(init as ExchangeInit);
    } catch (error) {
      // The request may wait for a slot of another member.
      (init as ExchangeInit).exchange.pending.isWaiting = true;
      throw error;
    }
  }

  /** Sets the address of a request to the member of a pool that its slot is for. */
  const addressAt: AddressRequest = ({ member }, input, init) => {
    const { exchange } = init as ExchangeInit;
    if (member !== undefined) exchange.address = exchange.addressOf(member);
    return [input, init];
  };

  /**
   * Marks the request as waiting again. A retry may wait for another slot, and can be rejected
   * during that time.
   */
  function retry(response: Response): boolean | undefined {
    if (isClosing) return false;
    (response as unknown as UpstreamResponse).pending.isWaiting = true;
    return undefined;
  }

  function key(_url: unknown, init?: RequestInit): Key | undefined {
    return (init as ExchangeInit).exchange.key;
  }

  function keptOf(bucket: Bucket, accounts: How["accounts"]): Kept {
    const ofBucket = made.get(bucket) ?? new WeakMap<How["accounts"], Kept>();
    made.set(bucket, ofBucket);
    const found = ofBucket.get(accounts);
    if (found !== undefined) return found;
    // Without separate headers, a member gets the credentials of the client, and these say nothing of its account.
    const watched = watchMembers(bucket as OwnedBucket, {
      // While the server closes, no request waits for another member.
      includes: () => !isClosing,
      hasAccount: (member) => accounts.has(member),
    });
    const kept = { fetch: createFetch(watched, {}, addressAt), fetches: new Map() };
    ofBucket.set(accounts, kept);
    return kept;
  }

  function fetchOf(bucket: Bucket, { accounts, ...clientHeaders }: How): ThrottledFetch {
    const { maxWaitMs, priority, tries } = clientHeaders;
    const { fetch: ofBucket, fetches } = keptOf(bucket, accounts);
    const name = `${maxWaitMs} ${priority} ${tries}`;
    const found = fetches.get(name);
    if (found !== undefined) return found;
    if (fetches.size >= MOST_KEPT) fetches.clear();
    const fetch = ofBucket.with({ fetch: sendNow, key, maxWaitMs, priority, tries, retry });
    fetches.set(name, fetch);
    return fetch;
  }

  return {
    send(bucket, exchange, how) {
      const { method, body, pending } = exchange;
      const { origin, path } = exchange.address;
      const { signal } = pending.ending;
      // The bucket reads the address and the body, and passes all of `init` on to `sendExchange`.
      const init = { method, body: body ?? null, redirect: "manual", signal, exchange };
      return fetchOf(bucket, how)(`${origin}${path}`, init as unknown as RequestInit);
    },
    close() {
      isClosing = true;
    },
  };
}
