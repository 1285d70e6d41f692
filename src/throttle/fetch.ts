import type { OwnedBucket } from "./bucket.ts";
import { readDrawOptions, type DrawOptions, type TryOptions } from "./draw-options.ts";
import { readAnswer } from "./feedback/answer.ts";
import type { Slot } from "./slot.ts";

type FetchFunction = typeof globalThis.fetch;

/** The `fetch` of a bucket; `with` gives one whose calls draw with other options. */
export type ThrottledFetch = FetchFunction & {
  with(options: DrawOptions): ThrottledFetch;
};

/** The first try, and two more. */
const MOST_TRIES = 3;
/** A server that answers 503 may have begun: only what can be done twice is tried again. */
const SAFE_TWICE = new Set(["GET", "HEAD", "OPTIONS", "PUT", "DELETE"]);

export function createFetch(bucket: OwnedBucket, options: DrawOptions = {}): ThrottledFetch {
  async function throttledFetch(
    input: Parameters<FetchFunction>[0],
    init?: RequestInit,
  ): Promise<Response> {
    const isReplayable = canReplay(input, init);
    for (let attempt = 1; ; attempt++) {
      const signal =
        init?.signal ?? (input instanceof Request ? input.signal : undefined) ?? undefined;
      const slot = await bucket.draw(signal === undefined ? options : { ...options, signal });
      const response = await send(input, init, slot, signal);
      const isLast =
        attempt === MOST_TRIES || !isReplayable || !isRefused(response, methodOf(input, init));
      if (isLast) return releasedAtEnd(response, slot);
      // The answer is not read, but its connection is wanted again.
      await response.body?.cancel();
      slot.release();
    }
  }

  async function send(
    input: Parameters<FetchFunction>[0],
    init: RequestInit | undefined,
    slot: Slot,
    signal: AbortSignal | undefined,
  ): Promise<Response> {
    try {
      const either = signal === undefined ? slot.signal : AbortSignal.any([signal, slot.signal]);
      const again = input instanceof Request ? input.clone() : input;
      const response = await globalThis.fetch(again, { ...init, signal: either });
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

function isRefused(response: Response, method: string): boolean {
  if (response.status === 429) return true;
  return SAFE_TWICE.has(method) && readAnswer(response, Date.now())?.isLimited === true;
}

function methodOf(input: Parameters<FetchFunction>[0], init: RequestInit | undefined): string {
  return (init?.method ?? (input instanceof Request ? input.method : "GET")).toUpperCase();
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
  const body = new ReadableStream<Uint8Array>({
    async pull(controller) {
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
    async cancel(reason) {
      slot.release();
      await reader.cancel(reason);
    },
  });
  const { status, statusText, headers, url } = response;
  return Object.defineProperty(new Response(body, { status, statusText, headers }), "url", {
    value: url,
  });
}
