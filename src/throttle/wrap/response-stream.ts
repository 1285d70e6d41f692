/**
 * Returns a response to its caller. When the body has streamed, the call and its lease end. The body is also copied on
 * its way to the caller, so that `settle` can read it.
 */

/** The number of bytes that are read ahead. A short response then ends its lease even if the caller never reads it. */
const READ_AHEAD_BYTES = 65_536;

/**
 * Cancels the bodies of responses that were garbage-collected, as `fetch` itself does. Otherwise their leases would
 * never end.
 */
const unreachable = new FinalizationRegistry<(reason: unknown) => unknown>((cancel) =>
  cancel("the response was collected as garbage before its body was read"),
);

/** A copy of a response. The body of the copy arrives while the caller reads the original. */
export interface ResponseCopy {
  readonly response: Response;
  /** True if the body broke off or the caller cancelled it, so that the copy is incomplete. */
  readonly isCutShort: boolean;
  /** Stops copying. */
  drop(): void;
  /** Passes the bytes of the original body to the copy. */
  readonly tap: Tap;
}

/** Receives the bytes of a body while the body streams to the caller. */
export interface Tap {
  pass(bytes: Uint8Array): void;
  end(): void;
  cut(reason: unknown): void;
}

/**
 * A response whose sender delivers the body without a web stream, because a web stream would take longer than all other
 * work for the response.
 */
export interface FollowedResponse {
  /** Connects a tap to the body. Undefined if the body was already read through a web stream. */
  readonly followBody: ((tap: Tap) => void) | undefined;
  /** Wraps a tap: the returned tap accepts the raw bytes of the body, which may be compressed. */
  decoding(tap: Tap): Tap;
}

function followOf(response: Response): FollowedResponse["followBody"] {
  return (response as Partial<FollowedResponse>).followBody;
}

/**
 * Returns the response in such a way that `onEnd` is called when the body has streamed. `onEnd` may be called more than
 * once.
 */
export function streamResponse(
  response: Response,
  onEnd: () => void,
  taps: readonly Tap[] = [],
): Response {
  const plain: Tap = {
    pass(bytes) {
      for (const tap of taps) tap.pass(bytes);
    },
    end() {
      onEnd();
      for (const tap of taps) tap.end();
    },
    cut(reason) {
      onEnd();
      for (const tap of taps) tap.cut(reason);
    },
  };
  const all = (response as Partial<FollowedResponse>).decoding?.(plain) ?? plain;
  const follow = followOf(response);
  if (follow !== undefined) {
    follow(all);
    return response;
  }
  const { body } = response;
  if (body === null || !isWhole(response)) {
    onEnd();
    return response;
  }
  return withBody(response, streamOf(body, all));
}

/**
 * True if no byte of the body has been read. A partly read body is not wrapped, because that would hide from the caller
 * that bytes are missing.
 */
function isWhole({ body, bodyUsed }: Response): boolean {
  return body?.locked !== true && !bodyUsed;
}

function streamOf(body: ReadableStream<Uint8Array>, tap: Tap): ReadableStream<Uint8Array> {
  const reader = body.getReader();
  function cut(reason: unknown): void {
    unreachable.unregister(reader);
    tap.cut(reason);
  }
  async function cancel(reason: unknown): Promise<void> {
    cut(reason);
    await reader.cancel(reason);
  }
  async function pull(controller: ReadableStreamDefaultController<Uint8Array>): Promise<void> {
    try {
      const { done, value } = await reader.read();
      if (!done) {
        tap.pass(value);
        return controller.enqueue(value);
      }
      unreachable.unregister(reader);
      tap.end();
      controller.close();
    } catch (error) {
      cut(error);
      controller.error(error);
    }
  }
  const strategy = new ByteLengthQueuingStrategy({ highWaterMark: READ_AHEAD_BYTES });
  const stream = new ReadableStream({ pull, cancel }, strategy);
  // Ends the call if the connection breaks while the caller does not read the body.
  reader.closed.catch(cut);
  unreachable.register(stream, (reason) => cancel(reason).catch(() => {}), reader);
  return stream;
}

/**
 * Copies a response that is about to be returned. The copy stores all bytes that were not yet read from the copy, until
 * it is dropped.
 */
export function copyOf(response: Response): ResponseCopy {
  let sink: ReadableStreamDefaultController<Uint8Array> | undefined;
  let isCutShort = false;
  const drop = (): void => void (sink = undefined);
  const source = {
    start: (controller: ReadableStreamDefaultController<Uint8Array>) => void (sink = controller),
    cancel: drop,
  };
  const isFollowed = followOf(response) !== undefined;
  const isCopied = isFollowed || (response.body !== null && isWhole(response));
  return {
    response: isCopied ? withBody(response, new ReadableStream(source)) : response,
    get isCutShort() {
      return isCutShort;
    },
    drop,
    tap: {
      // Copies the bytes, because the caller may change the originals.
      pass: (bytes) => sink?.enqueue(bytes.slice()),
      end() {
        sink?.close();
        drop();
      },
      cut(reason) {
        isCutShort = true;
        sink?.error(reason);
        drop();
      },
    },
  };
}

function withBody(response: Response, body: ReadableStream<Uint8Array>): Response {
  const { headers, ok, redirected, status, statusText, type, url } = response;
  const facts = { ok, redirected, status, statusText, type, url };
  return withFacts(new Response(body, { headers }), facts);
}

/**
 * Copies the properties of the original to a new response. This includes values that no constructor accepts, such as a
 * url or a status of 999.
 */
function withFacts(response: Response, facts: Partial<Response>): Response {
  const clone = (): Response => withFacts(Response.prototype.clone.call(response), facts);
  const properties = Object.entries({ ...facts, clone }).map(([name, value]) => [name, { value }]);
  return Object.defineProperties(response, Object.fromEntries(properties) as PropertyDescriptorMap);
}
