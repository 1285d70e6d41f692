import type { OwnedBucket } from "./owned-bucket.ts";
import { readDrawOptions, type DrawOptions, type TryOptions } from "./draw-options.ts";
import { readAnswer } from "./feedback/answer.ts";
import type { Slot } from "./slot.ts";
import type { FetchFunction, ThrottledFetch } from "./throttled-fetch.ts";

/** The first try, and two more. */
const MOST_TRIES = 3;
/** A server that answers 503 may have begun: only what can be done twice is tried again. */
const SAFE_TWICE = new Set(["GET", "HEAD", "OPTIONS", "PUT", "DELETE"]);
/** So much of an answer is read ahead, so that one which nobody reads does not hold its lease for ever. */
const READ_AHEAD_BYTES = 65_536;

export function createFetch(bucket: OwnedBucket, options: DrawOptions = {}): ThrottledFetch {
  async function throttledFetch(
    input: Parameters<FetchFunction>[0],
    init?: RequestInit,
  ): Promise<Response> {
    const isReplayable = canReplay(input, init);
    const signal = signalOf(input, init);
    const waiting = { ...options, signal: anyOf([signal, options.signal]) };
    for (let attempt = 1; ; attempt++) {
      const slot = await bucket.draw(waiting);
      const response = await send(input, init, slot, signal);
      const isLast =
        attempt === MOST_TRIES || !isReplayable || !isRefused(response, methodOf(input, init));
      if (isLast) return releasedAtEnd(response, slot);
      slot.release();
      // Nobody reads this answer, and whether its connection broke meanwhile matters to nobody.
      await response.body?.cancel().catch(() => {});
      // Redis may meet a new draw before the cooldown, as when it has to be given that script first.
      await bucket.heard();
    }
  }

  async function send(
    input: Parameters<FetchFunction>[0],
    init: RequestInit | undefined,
    slot: Slot,
    signal: AbortSignal | undefined,
  ): Promise<Response> {
    try {
      const either = anyOf([signal, slot.hasLease ? slot.signal : undefined]);
      const response = await globalThis.fetch(input, { ...init, signal: either ?? null });
      bucket.hear(response, slot, drawn(options));
      return response;
    } catch (error) {
      slot.release();
      bucket.hear(error, slot, drawn(options));
      throw error;
    }
  }

  const withOptions = (given: DrawOptions): ThrottledFetch =>
    createFetch(bucket, { ...options, ...readDrawOptions("fetch.with()", given) });
  return Object.assign(throttledFetch, { with: withOptions });
}

function drawn({ key, cost }: DrawOptions): TryOptions {
  return { key, cost };
}

/** As of `fetch` itself: null takes the signal of a Request away. */
function signalOf(
  input: Parameters<FetchFunction>[0],
  init: RequestInit | undefined,
): AbortSignal | undefined {
  if (init?.signal !== undefined) return init.signal ?? undefined;
  return input instanceof Request ? input.signal : undefined;
}

function anyOf(signals: readonly (AbortSignal | undefined)[]): AbortSignal | undefined {
  const given = signals.filter((signal) => signal !== undefined);
  return given.length > 1 ? AbortSignal.any(given) : given[0];
}

function isRefused(response: Response, method: string): boolean {
  if (response.status === 429) return true;
  return SAFE_TWICE.has(method) && readAnswer(response, Date.now())?.isLimited === true;
}

function methodOf(input: Parameters<FetchFunction>[0], init: RequestInit | undefined): string {
  // As fetch does, whatever was given.
  return String(init?.method ?? (input instanceof Request ? input.method : "GET")).toUpperCase();
}

/** A body that streams can be sent once only. */
function canReplay(input: Parameters<FetchFunction>[0], init: RequestInit | undefined): boolean {
  const body = init?.body ?? undefined;
  if (body === undefined) return !(input instanceof Request) || input.body === null;
  return (
    typeof body === "string" ||
    body instanceof URLSearchParams ||
    body instanceof FormData ||
    body instanceof Blob ||
    body instanceof ArrayBuffer ||
    ArrayBuffer.isView(body)
  );
}

/** A streamed answer is a call that still runs: its lease ends with its last byte. */
function releasedAtEnd(response: Response, slot: Slot): Response {
  if (!slot.hasLease || response.body === null) {
    slot.release();
    return response;
  }
  const reader = response.body.getReader();
  const source = {
    async pull(controller: ReadableStreamDefaultController<Uint8Array>): Promise<void> {
      try {
        const { done, value } = await reader.read();
        if (!done) return controller.enqueue(value);
        slot.release();
        controller.close();
      } catch (error) {
        slot.release();
        controller.error(error);
      }
    },
    async cancel(reason: unknown): Promise<void> {
      slot.release();
      await reader.cancel(reason);
    },
  };
  const strategy = new ByteLengthQueuingStrategy({ highWaterMark: READ_AHEAD_BYTES });
  const { headers, ok, redirected, status, statusText, type, url } = response;
  const facts = { ok, redirected, status, statusText, type, url };
  return withFacts(new Response(new ReadableStream(source, strategy), { headers }), facts);
}

/** Says of itself what the true answer did, also what no constructor takes: its url, or a status of 999. */
function withFacts(response: Response, facts: Partial<Response>): Response {
  const clone = (): Response => withFacts(Response.prototype.clone.call(response), facts);
  const properties = Object.entries({ ...facts, clone }).map(([name, value]) => [name, { value }]);
  return Object.defineProperties(response, Object.fromEntries(properties) as PropertyDescriptorMap);
}
