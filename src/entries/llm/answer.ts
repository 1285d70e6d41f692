import { createParser } from "eventsource-parser";
import type { CountTokens } from "./estimate.ts";
import { createTally, type Answered, type Tally } from "./tally.ts";
import { usageIn, usageInHeaders } from "./usage.ts";

/**
 * The most bytes of an answer, or of one event of a stream, that are searched for usage. Larger
 * answers contain pictures or sound.
 */
const MOST_BYTES = 20_000_000;

/**
 * Thrown to stop the search for usage in a long answer. The caller still receives the whole answer.
 */
class TooLong extends Error {
  constructor(what: "an answer" | "an event of an answer") {
    super(`the usage is not read from ${what} of more than ${MOST_BYTES} bytes`);
    this.name = "TooLong";
  }
}

/**
 * Reads the id, text and usage of a model's answer. Returns undefined if the result is not a
 * model's answer, or if the end of the answer cannot be observed.
 *
 * @throws {@link TooLong} as soon as a response exceeds the limit.
 */
export async function readAnswered(
  result: unknown,
  count: CountTokens,
): Promise<Answered | undefined> {
  if (isResponse(result)) return readResponse(result, count);
  if (typeof result !== "object" || result === null) return undefined;
  const stream = streamIn(result);
  if (stream !== undefined) return watch(stream, createTally(count));
  const tally = createTally(count);
  tally.see(bodyIn(result) ?? result);
  return tally.end(true);
}

function isResponse(result: unknown): result is Response {
  if (typeof result !== "object" || result === null) return false;
  const { status, headers, text } = result as Partial<Response>;
  return (
    typeof status === "number" && typeof headers?.get === "function" && typeof text === "function"
  );
}

async function readResponse(response: Response, count: CountTokens): Promise<Answered | undefined> {
  if (!response.ok) return undefined;
  const type = response.headers.get("content-type") ?? "";
  const tally = createTally(count);
  if (/event-stream/i.test(type)) return readEvents(response, tally);
  if (/eventstream/i.test(type)) return readFrames(response, tally);
  if (/ndjson|jsonl|stream\+json/i.test(type)) return readLines(response, tally);
  if (!/json/i.test(type)) return undefined;
  const body: unknown = JSON.parse(await textOf(response));
  // Without `alt=sse`, Gemini streams a JSON list.
  for (const each of Array.isArray(body) ? body : [body]) tally.see(each);
  const inHeaders = usageInHeaders(response.headers);
  const answered = tally.end(true);
  const isStated = Object.keys(answered.usage).length > 0;
  if (isStated || inHeaders === undefined) return answered;
  return { ...answered, usage: inHeaders, isOutputStated: inHeaders.output !== undefined };
}

async function textOf(response: Response): Promise<string> {
  // The response objects of some libraries have no web stream.
  if (typeof response.body?.getReader !== "function") return response.text();
  if (Number(response.headers.get("content-length")) > MOST_BYTES) throw new TooLong("an answer");
  const pieces: Uint8Array[] = [];
  let size = 0;
  for await (const bytes of bytesOf(response)) {
    size += bytes.length;
    if (size > MOST_BYTES) throw new TooLong("an answer");
    pieces.push(bytes);
  }
  return new TextDecoder().decode(Buffer.concat(pieces));
}

/**
 * Reads server-sent events. If the stream fails or the caller stops reading, the events received
 * until then count.
 */
async function readEvents(response: Response, tally: Tally): Promise<Answered> {
  const parser = createParser({
    onEvent: ({ data }) => seeText(data, tally),
    maxBufferSize: MOST_BYTES,
    onError({ type }) {
      if (type === "max-buffer-size-exceeded") throw new TooLong("an event of an answer");
    },
  });
  const decoder = new TextDecoder();
  let isWhole = true;
  try {
    for await (const bytes of bytesOf(response)) {
      parser.feed(decoder.decode(bytes, { stream: true }));
    }
    // Some servers omit the last empty line.
    parser.feed(`${decoder.decode()}\n\n`);
  } catch (error) {
    if (error instanceof TooLong) throw error;
    // The caller gets the same error from its own copy of the stream.
    isWhole = false;
  }
  return tally.end(isWhole);
}

/** Reads an answer that consists of lines of JSON, as Ollama streams them. */
async function readLines(response: Response, tally: Tally): Promise<Answered> {
  const decoder = new TextDecoder();
  let rest = "";
  let isWhole = true;
  try {
    for await (const bytes of bytesOf(response)) {
      const [first = "", ...others] = decoder.decode(bytes, { stream: true }).split("\n");
      const lines = [rest + first, ...others];
      rest = lines.pop()!;
      if (rest.length > MOST_BYTES) throw new TooLong("an event of an answer");
      for (const line of lines) seeText(line, tally);
    }
    seeText(rest, tally);
  } catch (error) {
    if (error instanceof TooLong) throw error;
    isWhole = false;
  }
  return tally.end(isWhole);
}

/**
 * Reads an answer in the binary frame format of AWS. A frame contains the usage or text as JSON, or
 * as JSON in base64.
 */
async function readFrames(response: Response, tally: Tally): Promise<Answered> {
  let pieces: Uint8Array[] = [];
  let size = 0;
  /**
   * The bytes that are needed to continue: the length of the next frame if it is known, otherwise
   * the length of a prelude.
   */
  let needed = PRELUDE;
  let isWhole = true;
  try {
    for await (const bytes of bytesOf(response)) {
      pieces.push(bytes);
      size += bytes.length;
      if (size < needed) continue;
      const rest = seeFrames(Buffer.concat(pieces), tally);
      pieces = [rest];
      size = rest.length;
      needed = size < PRELUDE ? PRELUDE : rest.readUInt32BE();
    }
  } catch (error) {
    if (error instanceof TooLong) throw error;
    isWhole = false;
  }
  return tally.end(isWhole);
}

const FRAME_PAYLOAD = /application\/json(?:[^{]|\r|\n)*?(\{[^]*)/;

/**
 * The length of the prelude of a frame, in bytes. The prelude contains the frame's length, the
 * length of its headers, and a checksum of both.
 */
const PRELUDE = 12;

/**
 * Passes the payload of each complete frame to the tally, and returns the remaining bytes. A frame
 * begins with its length in four bytes.
 */
function seeFrames(bytes: Buffer, tally: Tally): Buffer {
  let from = 0;
  while (from + PRELUDE <= bytes.length) {
    const length = bytes.readUInt32BE(from);
    if (length < 16) throw new Error("the answer is not in the frame format of AWS");
    if (length > MOST_BYTES) throw new TooLong("an event of an answer");
    if (from + length > bytes.length) break;
    // Excludes the checksum at the end of the frame.
    const frame = bytes.toString("latin1", from + PRELUDE, from + length - 4);
    const [, payload] = FRAME_PAYLOAD.exec(frame) ?? [];
    if (payload !== undefined) seePayload(Buffer.from(payload, "latin1").toString(), tally);
    from += length;
  }
  return bytes.subarray(from);
}

function seePayload(payload: string, tally: Tally): void {
  const event = parsed(payload) as { readonly bytes?: unknown } | undefined;
  if (typeof event?.bytes === "string")
    seeText(Buffer.from(event.bytes, "base64").toString(), tally);
  else if (event !== undefined) tally.see(event);
}

function seeText(text: string, tally: Tally): void {
  const event = parsed(text);
  if (event !== undefined) tally.see(event);
}

/**
 * Parses JSON. Returns undefined for any other text, such as the `[DONE]` at the end of a stream.
 */
function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

async function* bytesOf({ body }: Response): AsyncGenerator<Uint8Array> {
  const reader = body?.getReader();
  if (reader === undefined) return;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    // Cancels the rest of the stream, so that it does not stay in memory.
    await reader.cancel().catch(() => {});
  }
}

type AnyStream = AsyncIterable<unknown>;

/**
 * Finds the stream in the result of a client: the result itself, its `stream` or its `body`.
 * Returns undefined if the result states its usage, because the stream has then already ended.
 */
function streamIn(result: object): AnyStream | undefined {
  if ("textStream" in result || usageIn(result) !== undefined) return undefined;
  const { stream, body } = result as { readonly stream?: unknown; readonly body?: unknown };
  return [result, stream, body].find(isStream);
}

function isStream(value: unknown): value is AnyStream {
  if (typeof value !== "object" || value === null || ArrayBuffer.isView(value)) return false;
  return typeof (value as Partial<AnyStream>)[Symbol.asyncIterator] === "function";
}

/**
 * Parses the body of a client's result. The AWS client returns bytes, other clients return text.
 */
function bodyIn(result: object): unknown {
  const { body } = result as { readonly body?: unknown };
  if (typeof body === "string") return parsed(body);
  return body instanceof Uint8Array ? parsed(Buffer.from(body).toString()) : undefined;
}

/**
 * Observes the events of a stream while its caller reads them. The caller keeps the same stream
 * object. A stream that is never read, or that the client reads in another way, is not observed.
 */
function watch(stream: AnyStream, tally: Tally): Promise<Answered> {
  const begin = stream[Symbol.asyncIterator].bind(stream);
  return new Promise((resolve) => {
    const end = (isWhole: boolean): void => resolve(tally.end(isWhole));
    const isItself = "next" in stream;
    if (isItself) watchIterator(stream as AnyStream & AsyncIterator<unknown>, tally, end);
    else {
      Object.defineProperty(stream, Symbol.asyncIterator, {
        configurable: true,
        value: () => watchIterator(begin(), tally, end),
      });
    }
  });
}

function watchIterator<Iterator extends AsyncIterator<unknown>>(
  iterator: Iterator,
  tally: Tally,
  end: (isWhole: boolean) => void,
): Iterator {
  const next = iterator.next.bind(iterator);
  const leave = iterator.return?.bind(iterator);

  function see({ done, value }: IteratorResult<unknown>): void {
    if (done === true) return end(true);
    tally.see(eventOf(value));
  }

  const watched = {
    async next(...given: [] | [undefined]) {
      try {
        const step = await next(...given);
        see(step);
        return step;
      } catch (error) {
        end(false);
        throw error;
      }
    },
    ...(leave && {
      async return(value?: unknown) {
        end(false);
        return leave(value);
      },
    }),
  };
  for (const [name, value] of Object.entries(watched)) {
    Object.defineProperty(iterator, name, { value, configurable: true, writable: true });
  }
  return iterator;
}

/** Unwraps an event of the AWS client. The bytes of its chunk contain the model's event. */
function eventOf(value: unknown): unknown {
  const bytes = (value as { readonly chunk?: { readonly bytes?: unknown } } | null)?.chunk?.bytes;
  return bytes instanceof Uint8Array ? parsed(Buffer.from(bytes).toString()) : value;
}
