import type { Answer } from "../../core/answer.ts";
import { hear, NOTHING_HEARD, type Heard, type ReadBodies } from "./answer.ts";
import { headerOf } from "./headers.ts";
import { isErrorLike, isResponse, layersOf } from "./layers.ts";

/** How much of a body is read, and for how long. */
const MOST_BYTES = 65_536;
const LONGEST_MS = 1_000;

/** What was heard, with the bodies that had to be read for it. */
export interface HeardWithBody extends Heard {
  readonly body: string | undefined;
}

const NOTHING: HeardWithBody = Object.freeze({ ...NOTHING_HEARD, body: undefined });

/**
 * Reads what a call returned or threw: whether its downstream refuses calls, for how long, and whether a retry is of
 * use. Knows the clients and downstreams of `docs/reference/refusals.md`, and others by the shape of what they give. The bucket's
 * own `feedback` hears by it too.
 *
 * Await it: it answers at once, except for a `Response` that failed and whose body is yet to be read, on its own or
 * within an error. That body is read from a clone, 64 KiB and one second at most. Never throws nor rejects.
 */
export function readAnswer(response: Response): Promise<Answer>;
export function readAnswer(resultOrError: unknown): Answer | Promise<Answer>;
export function readAnswer(resultOrError: unknown): Answer | Promise<Answer> {
  const heard = hearAll(resultOrError);
  if (heard instanceof Promise) return heard.then(({ answer }) => answer);
  return isResponse(resultOrError) ? Promise.resolve(heard.answer) : heard.answer;
}

/** The same, with headers and body. A promise only if a body has to be read. */
export function hearAll(resultOrError: unknown): HeardWithBody | Promise<HeardWithBody> {
  if (typeof resultOrError !== "object" || resultOrError === null) return NOTHING;
  const response = unreadResponse(resultOrError);
  if (response === undefined) return { body: undefined, ...hear(resultOrError, Date.now()) };
  return hearWithBody(resultOrError, response);
}

async function hearWithBody(resultOrError: unknown, response: Response): Promise<HeardWithBody> {
  const body = await readClone(response);
  const bodies: ReadBodies = new Map(body === undefined ? [] : [[response, body]]);
  return { ...hear(resultOrError, Date.now(), bodies), body };
}

/** The response whose body may say more than its status, and has yet to be read. */
function unreadResponse(resultOrError: unknown): Response | undefined {
  if (typeof resultOrError !== "object" || resultOrError === null) return undefined;
  if (isResponse(resultOrError)) return isTelling(resultOrError) ? resultOrError : undefined;
  if (!isErrorLike(resultOrError)) return undefined;
  return layersOf(resultOrError)
    .flatMap(({ parts }) => parts)
    .find((part): part is Response => isResponse(part) && isTelling(part));
}

/** Whether a body is to be read: that of a failure, and that of GraphQL, which refuses with a 200. */
function isTelling(response: Response): boolean {
  try {
    return mayTell(response) && isReadable(response);
  } catch {
    return false;
  }
}

function mayTell({ status, headers, url }: Response): boolean {
  const type = headerOf(headers, "content-type") ?? "";
  if (status >= 400) return /json|xml|text|^$/i.test(type);
  const isGraphql = /graphql/i.test(type) || /\/graphql(?:\.json)?(?:[?#]|$)/.test(url);
  // Refusals are short, and a long answer is not held up.
  const isShort = !(Number(headerOf(headers, "content-length")) > MOST_BYTES);
  return isGraphql && isShort && /json/i.test(type);
}

/** To look at a body may begin it. A clone of node-fetch's would hold the original up until both are read. */
function isReadable({ body, bodyUsed }: Response): boolean {
  return typeof body?.getReader === "function" && !bodyUsed && !body.locked;
}

/** The beginning of a body, read from a clone; undefined if it did not come in time. */
async function readClone(response: Response): Promise<string | undefined> {
  let timer: NodeJS.Timeout | undefined;
  const reader = await bodyReader(response);
  if (reader === undefined) return undefined;
  try {
    const late = new Promise<undefined>((resolve) => {
      timer = setTimeout(() => resolve(undefined), LONGEST_MS);
    });
    return await Promise.race([readText(reader), late]);
  } catch {
    // The connection broke; its caller will see that too.
    return undefined;
  } finally {
    clearTimeout(timer);
    reader.cancel().catch(() => {});
  }
}

async function bodyReader(
  response: Response,
): Promise<ReadableStreamDefaultReader<Uint8Array> | undefined> {
  try {
    return response.clone().body?.getReader();
  } catch {
    return undefined;
  }
}

async function readText(reader: ReadableStreamDefaultReader<Uint8Array>): Promise<string> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  while (size < MOST_BYTES) {
    const { done, value } = await reader.read();
    if (done) break;
    chunks.push(value);
    size += value.byteLength;
  }
  return Buffer.concat(chunks).subarray(0, MOST_BYTES).toString();
}
