/** The bodies of requests: whether they can be sent again, and the copy of those that can be read once only. */
import { readProperty } from "../feedback/properties.ts";
import type { FetchFunction } from "../call-options.ts";

type Input = Parameters<FetchFunction>[0];

/** The longest body of a Request that is kept for another try. */
const MOST_BYTES = 1_048_576;

/** Whether, and with which body, a request can be sent again. */
export interface Replay {
  /** Undefined if it cannot. */
  readonly again: () => RequestInit | undefined;
  /** Forgets the copy. */
  readonly drop: () => void;
}

const AS_IT_IS: Replay = Object.freeze({ again: () => ({}), drop: () => {} });
const NEVER: Replay = Object.freeze({ again: () => undefined, drop: () => {} });

/**
 * How a request can be sent again. The body of a Request is copied as it is sent, up to 1 MiB; one that is longer, or
 * has not come to its end when the answer is there, is not sent twice. A stream in `init` never is.
 */
export function replayOf(input: Input, init: RequestInit | undefined): Replay {
  const body = init?.body ?? undefined;
  if (body !== undefined) return isKept(body) ? AS_IT_IS : NEVER;
  if (!isRequest(input) || input.body === null) return AS_IT_IS;
  return copyBody(input);
}

/** Whether a body is still whole after it has been sent. */
function isKept(body: unknown): boolean {
  return (
    typeof body === "string" ||
    body instanceof URLSearchParams ||
    body instanceof FormData ||
    body instanceof Blob ||
    body instanceof ArrayBuffer ||
    ArrayBuffer.isView(body)
  );
}

/** A Request, also one of another package. */
export function isRequest(input: unknown): input is Request {
  const isObject = typeof readProperty(input, "url") === "string";
  return isObject && typeof readProperty(input, "clone") === "function";
}

function copyBody(request: Request): Replay {
  let reader: ReadableStreamDefaultReader<Uint8Array> | undefined;
  try {
    reader = request.clone().body?.getReader();
  } catch {
    // It has been read already: fetch says so.
  }
  if (reader === undefined) return NEVER;
  let copied: Uint8Array<ArrayBuffer> | undefined;
  const drop = (): void => {
    copied = undefined;
    reader.cancel().catch(() => {});
  };
  readWhole(reader)
    .then((whole) => (copied = whole))
    .catch(() => {});
  return { again: () => (copied === undefined ? undefined : { body: copied }), drop };
}

/** All bytes; undefined if there are too many. */
async function readWhole(
  reader: ReadableStreamDefaultReader<Uint8Array>,
): Promise<Uint8Array<ArrayBuffer> | undefined> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  while (size <= MOST_BYTES) {
    const { done, value } = await reader.read();
    if (done) return new Uint8Array(Buffer.concat(chunks));
    chunks.push(value);
    size += value.byteLength;
  }
  await reader.cancel();
  return undefined;
}

/** What a Request says, for a `fetch` that may not know this class. */
export function initOf(request: Request): RequestInit {
  const { method, redirect, body } = request;
  const sent = body === null ? {} : { body, duplex: "half" as const };
  return { method, redirect, headers: [...request.headers], ...sent };
}
