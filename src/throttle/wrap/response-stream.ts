/** So much of an answer is read ahead, so that one which nobody reads does not hold its lease for ever. */
const READ_AHEAD_BYTES = 65_536;

/** Cancels what nobody can read any more, as `fetch` itself does: its lease would be held for ever. */
const unreachable = new FinalizationRegistry<(reason: unknown) => unknown>((cancel) =>
  cancel("the answer was not read, and nobody has it any more"),
);

/** The copy of an answer, whose body comes as its caller reads the answer's own. */
export interface AnswerCopy {
  readonly answer: Response;
  /** Whether the body has broken off, or the caller wanted no more of it: the copy holds no whole body then. */
  readonly isCutShort: boolean;
  /** Nobody reads it any more. */
  drop(): void;
  /** Where the bytes come from. */
  readonly tap: Tap;
}

/** What is done with the bytes of a body on their way to the caller. */
interface Tap {
  pass(bytes: Uint8Array): void;
  end(): void;
  cut(reason: unknown): void;
}

/** Hands an answer over that is a call for as long as its body streams. `onEnd` may be called more than once. */
export function streamResponse(response: Response, onEnd: () => void, copy?: AnswerCopy): Response {
  const { body } = response;
  if (body === null || !isWhole(response)) {
    onEnd();
    return response;
  }
  return withBody(
    response,
    streamOf(body, {
      pass: (bytes) => copy?.tap.pass(bytes),
      end() {
        onEnd();
        copy?.tap.end();
      },
      cut(reason) {
        onEnd();
        copy?.tap.cut(reason);
      },
    }),
  );
}

/** One that somebody has begun to read is whole no more, and its caller is to see that. */
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
  unreachable.register(stream, (reason) => cancel(reason).catch(() => {}), reader);
  return stream;
}

/** Copies an answer that is about to be handed over. It keeps what is not read yet, until it is dropped. */
export function copyOf(response: Response): AnswerCopy {
  let sink: ReadableStreamDefaultController<Uint8Array> | undefined;
  let isCutShort = false;
  const drop = (): void => void (sink = undefined);
  const source = {
    start: (controller: ReadableStreamDefaultController<Uint8Array>) => void (sink = controller),
    cancel: drop,
  };
  const isCopied = response.body !== null && isWhole(response);
  return {
    answer: isCopied ? withBody(response, new ReadableStream(source)) : response,
    get isCutShort() {
      return isCutShort;
    },
    drop,
    tap: {
      // Bytes of its own: whoever reads the others may change them.
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

/** Says of itself what the true answer did, also what no constructor takes: its url, or a status of 999. */
function withFacts(response: Response, facts: Partial<Response>): Response {
  const clone = (): Response => withFacts(Response.prototype.clone.call(response), facts);
  const properties = Object.entries({ ...facts, clone }).map(([name, value]) => [name, { value }]);
  return Object.defineProperties(response, Object.fromEntries(properties) as PropertyDescriptorMap);
}
