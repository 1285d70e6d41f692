/** So much of an answer is read ahead, so that one which nobody reads does not hold its lease for ever. */
const READ_AHEAD_BYTES = 65_536;

/** An answer for a caller, and what may be read of it beside. */
export interface HandedOver {
  readonly answer: Response;
  /** The same answer, whose body comes as the caller reads it. */
  readonly copy: Response;
  /** Whether its body has broken off, or the caller wanted no more of it: a copy holds no whole body then. */
  readonly isCutShort: boolean;
  /** Nobody reads the copy any more. */
  dropCopy(): void;
}

/** What is done with the bytes of a body on their way to the caller. */
interface Tap {
  pass(bytes: Uint8Array): void;
  end(): void;
  cut(reason: unknown): void;
}

/** Hands an answer over that is a call for as long as its body streams. `onEnd` may be called more than once. */
export function handOver(response: Response, onEnd: () => void): HandedOver {
  const { body } = response;
  // One that somebody has begun to read is whole no more, and its caller is to see that.
  if (body === null || body.locked || response.bodyUsed) {
    onEnd();
    return { answer: response, copy: response, isCutShort: false, dropCopy() {} };
  }
  const copied = createCopy();
  let isCutShort = false;
  const answer = withBody(
    response,
    streamOf(body, {
      pass: (bytes) => copied.pass(bytes),
      end() {
        onEnd();
        copied.end();
      },
      cut(reason) {
        isCutShort = true;
        onEnd();
        copied.cut(reason);
      },
    }),
  );
  return {
    answer,
    copy: withBody(response, copied.stream),
    get isCutShort() {
      return isCutShort;
    },
    dropCopy: () => copied.drop(),
  };
}

function streamOf(body: ReadableStream<Uint8Array>, tap: Tap): ReadableStream<Uint8Array> {
  const reader = body.getReader();
  const source = {
    async pull(controller: ReadableStreamDefaultController<Uint8Array>): Promise<void> {
      try {
        const { done, value } = await reader.read();
        if (!done) {
          tap.pass(value);
          return controller.enqueue(value);
        }
        tap.end();
        controller.close();
      } catch (error) {
        tap.cut(error);
        controller.error(error);
      }
    },
    async cancel(reason: unknown): Promise<void> {
      tap.cut(reason);
      await reader.cancel(reason);
    },
  };
  const strategy = new ByteLengthQueuingStrategy({ highWaterMark: READ_AHEAD_BYTES });
  return new ReadableStream(source, strategy);
}

/** A second stream of the same bytes. It keeps what is not read yet, until it is dropped. */
function createCopy(): Tap & { readonly stream: ReadableStream<Uint8Array>; drop(): void } {
  let sink: ReadableStreamDefaultController<Uint8Array> | undefined;
  const drop = (): void => void (sink = undefined);
  const stream = new ReadableStream<Uint8Array>({
    start: (controller) => void (sink = controller),
    cancel: drop,
  });
  return {
    stream,
    drop,
    // Bytes of its own: whoever reads the others may change them.
    pass: (bytes) => sink?.enqueue(bytes.slice()),
    end() {
      sink?.close();
      drop();
    },
    cut(reason) {
      sink?.error(reason);
      drop();
    },
  };
}

function withBody(response: Response, body: ReadableStream<Uint8Array>): Response {
  const { headers, ok, redirected, status, statusText, type, url } = response;
  const facts = { ok, redirected, status, statusText, type, url };
  return withFacts(new Response(body, { headers }), facts);
}

/** Says of itself what the true answer did, also what no constructor takes: its url, or a status of 999. */
function withFacts(response: Response, facts: Partial<Response>): Response {
  const clone = (): Response => withFacts(Response.prototype.clone.call(response), facts);
  const properties = Object.entries({ ...facts, clone }).map(([name, value]) => [name, { value }]);
  return Object.defineProperties(response, Object.fromEntries(properties) as PropertyDescriptorMap);
}
