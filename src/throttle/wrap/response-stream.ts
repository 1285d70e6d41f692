/**
 * Hands a response to its caller and ends the call, with its lease, when the body has streamed; and copies the body on
 * its way, for `settle`.
 */

/** How much of a body is read ahead: a short response that is never read does not hold its lease. */
const READ_AHEAD_BYTES = 65_536;

/** Cancels bodies that were collected as garbage, as `fetch` itself does: their leases would never end. */
const unreachable = new FinalizationRegistry<(reason: unknown) => unknown>((cancel) =>
  cancel("the response was collected as garbage before its body was read"),
);

/** The copy of a response, whose body arrives as the caller reads the response itself. */
export interface ResponseCopy {
  readonly response: Response;
  /** Whether the body broke off or the caller cancelled it: the copy then lacks its end. */
  readonly isCutShort: boolean;
  /** Ends the copying. */
  drop(): void;
  /** Where the bytes come from. */
  readonly tap: Tap;
}

/** What is done with the bytes of a body on their way to the caller. */
export interface Tap {
  pass(bytes: Uint8Array): void;
  end(): void;
  cut(reason: unknown): void;
}

/** A response whose body is handed over by whoever sent the request: a web stream in between would take longer than all else. */
export interface FollowedResponse {
  /** Lets a tap follow the body. Undefined once that was asked for as the body of any other response. */
  readonly followBody: ((tap: Tap) => void) | undefined;
  /** A tap for the bytes of the body as they come, which may be compressed. */
  decoding(tap: Tap): Tap;
}

function followOf(response: Response): FollowedResponse["followBody"] {
  return (response as Partial<FollowedResponse>).followBody;
}

/** The same response, whose call lasts until its body has streamed. `onEnd` may be called more than once. */
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

/** Whether no byte of the body has been read; its caller would not see that on a body of our own. */
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
  // One that nobody reads, above what is read ahead, ends here when its connection breaks.
  reader.closed.catch(cut);
  unreachable.register(stream, (reason) => cancel(reason).catch(() => {}), reader);
  return stream;
}

/** Copies a response that is about to be handed over. The copy keeps all bytes that are not read from it yet, until it is dropped. */
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
      // A copy of the bytes: the caller may change the others.
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

/** Gives a response the facts of the original, also those that no constructor takes: its url, or a status of 999. */
function withFacts(response: Response, facts: Partial<Response>): Response {
  const clone = (): Response => withFacts(Response.prototype.clone.call(response), facts);
  const properties = Object.entries({ ...facts, clone }).map(([name, value]) => [name, { value }]);
  return Object.defineProperties(response, Object.fromEntries(properties) as PropertyDescriptorMap);
}
