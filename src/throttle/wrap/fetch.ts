import { setMaxListeners } from "node:events";
import { reasonOf } from "../../core/describe.ts";
import { InvalidOptionError } from "../../core/errors.ts";
import type { OwnedBucket } from "../bucket.ts";
import {
  optionsReader,
  readFetchOverrides,
  withLessWait,
  type CallOptionsRead,
  type FetchCallOptions,
  type FetchFunction,
  type FetchOptions,
  type OptionsOfCall,
  type RetryContext,
  type SettleBy,
  type SettledCost,
  type ThrottledFetch,
} from "../call-options.ts";
import type { ReportedOutcome } from "../feedback/feedback.ts";
import { readProperty } from "../feedback/properties.ts";
import type { KeyedSlot } from "../slot/slot.ts";
import {
  refusedCost,
  settleRefused,
  settleUnused,
  withDefaults,
  type FilledOptions,
} from "./call-defaults.ts";
import { copyOf, streamResponse, type ResponseCopy, type Tap } from "./response-stream.ts";

/** The default of the option `tries`: the first try and two retries. */
const MOST_TRIES = 3;
/**
 * The idempotent methods. A server that responds with 503 may have started the work, so only requests with these
 * methods are retried.
 */
const SAFE_TWICE = new Set(["GET", "HEAD", "OPTIONS", "PUT", "DELETE"]);

/** A request as it is sent in each try. */
interface SentRequest {
  readonly input: Parameters<FetchFunction>[0];
  readonly init: RequestInit | undefined;
  readonly signal: AbortSignal | undefined;
  /** Additional options of a retry, which override `init`. Undefined for the first try. */
  readonly again?: RequestInit | undefined;
}

/** A try that got no response. */
interface FailedTry {
  readonly slot: KeyedSlot;
  readonly response: undefined;
  readonly error: unknown;
  readonly outcome: ReportedOutcome;
}

/** One try of a request, and its response. */
interface Tried {
  readonly slot: KeyedSlot;
  readonly response: Response;
  readonly outcome: ReportedOutcome;
  /** True if the call has a lease. It then lasts until the response has streamed. */
  readonly isHeld: boolean;
  /** Releases the slot and removes the listeners of signals. */
  readonly end: () => void;
}

type RequestOptions = FilledOptions<OptionsOfCall<CallOptionsRead>>;

/** Returns the request as the member of a pool receives it. */
export type AddressRequest = (
  slot: KeyedSlot,
  input: Parameters<FetchFunction>[0],
  init: RequestInit,
) => readonly [input: Parameters<FetchFunction>[0], init: RequestInit];

export function createFetch(
  bucket: OwnedBucket,
  options: FetchCallOptions = {},
  address?: AddressRequest,
): ThrottledFetch {
  const { tries: mostTries = MOST_TRIES, fetch: ownFetch, retry } = options;
  const optionsOf = optionsReader("fetch.with()", options);

  async function throttledFetch(
    given: Parameters<FetchFunction>[0],
    givenInit?: RequestInit,
  ): Promise<Response> {
    const args = [given, givenInit];
    const stated = optionsOf(args as never[]);
    const filled = withDefaults(bucket.calls, "fetch()", stated, { args });
    const own = filled instanceof Promise ? await filled : filled;
    const isInherited = hasInheritedOptions(givenInit);
    const input = isInherited ? new Request(given, givenInit) : given;
    const init = isInherited ? undefined : givenInit;
    const signal = signalOf(input, init);
    const either = joinSignals([signal, own.signal]);
    try {
      return await tryUntilTaken({ input, init, signal }, signalled(own, either.signal));
    } finally {
      either.leave();
    }
  }

  async function tryUntilTaken(sent: SentRequest, own: RequestOptions): Promise<Response> {
    let slot = await bucket.drawByHand(drawOf(own));
    own.onDrawn?.(slot);
    const mayTryAgain = mostTries > 1 && retry !== false;
    const replay = mayTryAgain ? replayOf(sent.input, sent.init) : undefined;
    try {
      let again: RequestInit | undefined;
      let waitedMs = 0;
      for (let tries = 1; ; tries++) {
        const tried = await send({ again, ...sent }, slot, own);
        const { response, outcome } = tried;
        again = tries < mostTries ? replay?.again() : undefined;
        const canMove = mayMove(sent, tried);
        waitedMs += slot.waitedMs;
        const left = canMove ? withLessWait(own, waitedMs) : own;
        if (response === undefined) {
          const next = canMove && again !== undefined ? await drawAgain(left, tried) : undefined;
          if (next === undefined) throw tried.error;
          slot = next;
        } else {
          const context = { answer: outcome.answer, tries, method: methodOf(sent) };
          const isRepeated = again !== undefined && isWorthAnother(tried, { canMove, context });
          if (!isRepeated) return handOver(tried, own);
          slot.release();
          // Waits for the cooldown to reach Redis. Otherwise a new draw could overtake it, for example if Redis must
          // first load the cooldown's script.
          await Promise.all([bucket.outcomesReported(), settleUnused(outcome, slot, own.cost)]);
          slot.keepEstimate?.();
          const next = await drawAgain(left, tried);
          if (next === undefined) return handOver(tried, own);
          drop(tried);
          slot = next;
        }
        own.onDrawn?.(slot);
      }
    } finally {
      replay?.drop();
    }
  }

  function isWorthAnother(
    { response, outcome }: Tried,
    { canMove, context }: { readonly canMove: boolean; readonly context: RetryContext },
  ): boolean {
    const byDefault = canMove || isToBeTriedAgain(response, outcome, context.method);
    if (typeof retry !== "function") return byDefault;
    try {
      return retry(response, context) ?? byDefault;
    } catch (error) {
      const problem = "retry() failed; the bucket decides by itself.";
      bucket.logger.warn({ bucket: bucket.name, reason: reasonOf(error) }, problem);
      return byDefault;
    }
  }

  /**
   * Draws a slot for a retry. Resolves to undefined if the draw fails, so that the caller gets the last response or error
   * instead. Rejects if the signal has aborted.
   */
  async function drawAgain(
    own: RequestOptions,
    last: Tried | FailedTry,
  ): Promise<KeyedSlot | undefined> {
    try {
      return await bucket.drawByHand(drawOf(own));
    } catch (error) {
      if (own.signal?.aborted !== true) return undefined;
      if (last.response !== undefined) drop(last);
      throw error;
    }
  }

  async function send(
    { input, init, signal, again }: SentRequest,
    slot: KeyedSlot,
    { cost, feedback }: RequestOptions,
  ): Promise<Tried | FailedTry> {
    const isHeld = slot.hasLease;
    const either = joinSignals([signal, isHeld ? slot.signal : undefined]);
    const end = (): void => {
      slot.release();
      either.leave();
    };
    let response: Response;
    try {
      const ended = signalled({ ...init, ...again }, either.signal ?? null);
      const [target, addressed] = address?.(slot, input, ended) ?? [input, ended];
      response = await request(target, addressed);
      slot.noteOutcome?.(response);
    } catch (error) {
      slot.noteOutcome?.(error);
      end();
      const outcome = await bucket.reportOutcome(error, slot, cost, feedback);
      const failed = { slot, response: undefined, error, outcome };
      if (mayMove({ input, init }, failed)) await settleUnused(outcome, slot, cost);
      // A failed request may have used its whole estimate.
      slot.keepEstimate?.();
      return failed;
    }
    const outcome = await bucket.reportOutcome(response, slot, cost, feedback);
    return { slot, response, outcome, isHeld, end };
  }

  /** Sends a request. A custom `fetch` may not accept the global `Request`, so its parts are passed separately. */
  function request(input: SentRequest["input"], init: RequestInit): Promise<Response> {
    if (ownFetch === undefined) return globalThis.fetch(input, init);
    // The undici package fails if this number is 0 or was never set for a signal, which is so for the signal of a
    // `Request`.
    if (init.signal) setMaxListeners(Infinity, init.signal);
    if (!isRequest(input)) return ownFetch(input, init);
    return ownFetch(input.url, { ...initOf(input), ...init });
  }

  /**
   * Returns the final response to the caller. The call lasts until the response has streamed, so its lease ends with
   * the last byte.
   */
  function handOver(tried: Tried, own: RequestOptions): Response {
    const { slot, response, outcome, isHeld, end } = tried;
    const { settle, cost } = own;
    const taps =
      isEventStream(response) && own.feedback !== false ? [watchErrorEvents(tried, own)] : [];
    if (settle === undefined) {
      void settleRefused(outcome, slot, cost);
      return isHeld || taps.length > 0 ? streamResponse(response, end, taps) : response;
    }
    const copy = copyOf(response);
    const unused = refusedCost(outcome, cost);
    const read = async (): Promise<SettledCost | null | undefined> => {
      const stated = await readCost(settle, copy);
      return unused === undefined ? stated : { ...unused, ...withoutUnknown(stated) };
    };
    bucket.settleByResult(read, response, slot);
    return streamResponse(response, end, [copy.tap, ...taps]);
  }

  /** Reports an error in the middle of an event stream like a thrown error. */
  function watchErrorEvents({ slot, response }: Tried, { cost, feedback }: RequestOptions): Tap {
    const { headers } = response;
    return watchEvents((data) => {
      const error = new Error("The stream of events reports an error");
      void bucket.reportOutcome(
        Object.assign(error, { error: data, headers }),
        slot,
        cost,
        feedback,
      );
    });
  }

  const withOptions = (given: FetchOptions): ThrottledFetch =>
    createFetch(bucket, { ...options, ...readFetchOverrides("fetch.with()", given) }, address);
  return Object.assign(throttledFetch, { with: withOptions });
}

/** Returns the options of a draw. Under a budget, a request with `settle` only reserves its estimate. */
function drawOf(own: RequestOptions): RequestOptions {
  return own.settle === undefined ? own : { ...own, settles: true };
}

/**
 * Copies options with another signal. All copies have the same shape, because objects that grow are much slower and
 * stay in memory for longer.
 */
function signalled<Options extends object, Signal>(
  options: Options,
  signal: Signal,
): Options & { readonly signal: Signal } {
  return Object.assign({ signal }, options, { signal });
}

/**
 * Reads the cost from the copy of a response. Returns undefined if this fails because the caller did not read the whole
 * response.
 */
async function readCost(
  settle: SettleBy<unknown>,
  copy: ResponseCopy,
): Promise<SettledCost | null | undefined> {
  try {
    return await settle(copy.response);
  } catch (error) {
    if (copy.isCutShort) return undefined;
    throw error;
  } finally {
    copy.drop();
  }
}

/**
 * True if another member of a pool may get the request. If `fetch` may have followed a redirect, the last response or
 * error says nothing of the first request.
 */
function mayMove(
  sent: Pick<SentRequest, "input" | "init">,
  { response, outcome }: Tried | FailedTry,
): boolean {
  const { takeover } = outcome;
  if (takeover === undefined) return false;
  if (SAFE_TWICE.has(methodOf(sent))) return true;
  const isFirst = response === undefined ? redirectOf(sent) !== "follow" : !response.redirected;
  return takeover === "safe" && isFirst;
}

function redirectOf({ input, init }: Pick<SentRequest, "input" | "init">): string {
  return init?.redirect ?? (isRequest(input) ? input.redirect : "follow");
}

/** Drops a response that no caller gets. Errors of its connection are ignored. */
function drop({ response, end }: Tried): void {
  end();
  response.body?.cancel().catch(() => {});
}

/** True if a spread would lose some options. For example, the options of a `Request` are getters of its class. */
function hasInheritedOptions(init: RequestInit | null | undefined): boolean {
  if (!init || Object.getPrototypeOf(init) === Object.prototype) return false;
  const names = ["method", "headers", "body", "signal", "redirect"];
  return names.some((name) => name in init && !Object.hasOwn(init, name));
}

/**
 * Returns the signal of a request by the rules of `fetch`: a null in `init` replaces the signal of a `Request`.
 *
 * @throws {@link InvalidOptionError} when the signal is not an AbortSignal.
 */
function signalOf(
  input: Parameters<FetchFunction>[0],
  init: RequestInit | undefined,
): AbortSignal | undefined {
  const signal = init?.signal ?? undefined;
  if (signal !== undefined && !(signal instanceof AbortSignal)) {
    const remedy = "give an AbortSignal";
    throw new InvalidOptionError({ where: "fetch()", option: "signal", value: signal, remedy });
  }
  if (init?.signal !== undefined) return signal;
  return isRequest(input) ? input.signal : undefined;
}

/** True if a response asks for a retry of the same request, or allows a retry. */
function isToBeTriedAgain(
  { status }: Response,
  { heard, answer }: ReportedOutcome,
  method: string,
): boolean {
  if (!answer.retry || answer.lasts) return false;
  // Without a refusal, `answer.retry` means that the server asked for a retry. A 429 is safe to retry.
  if (!answer.refused || status === 429) return true;
  const mayHaveBegun = status === 503 || status === 403;
  return heard.refused && (!mayHaveBegun || SAFE_TWICE.has(method));
}

function isEventStream({ ok, headers }: Response): boolean {
  return ok && /^text\/event-stream\b/i.test(headers.get("content-type") ?? "");
}

function withoutUnknown(cost: SettledCost | null | undefined): SettledCost {
  const known = Object.entries(cost ?? {}).filter(([, amount]) => typeof amount === "number");
  return Object.fromEntries(known);
}

function methodOf({ input, init }: Pick<SentRequest, "input" | "init">): string {
  // Converts any value to a string, as `fetch` does.
  return String(init?.method ?? (isRequest(input) ? input.method : "GET")).toUpperCase();
}

/**
 * Joins several signals into one. The result is undefined if there is no signal. `leave` removes the listeners. This
 * replaces `AbortSignal.any`, which would leave an entry on each signal for the signal's whole life.
 */
function joinSignals(given: readonly (AbortSignal | undefined)[]): {
  readonly signal: AbortSignal | undefined;
  readonly leave: () => void;
} {
  const signals = given.filter((signal) => signal !== undefined);
  if (signals.length < 2) return { signal: signals[0], leave: () => {} };
  const joined = new AbortController();
  const leave = (): void => {
    for (const signal of signals) signal.removeEventListener("abort", pass);
  };
  function pass(this: AbortSignal): void {
    leave();
    joined.abort(this.reason);
  }
  for (const signal of signals) {
    // One signal may cancel a hundred calls. Without this, Node would warn about a leak of listeners.
    setMaxListeners(Infinity, signal);
    signal.addEventListener("abort", pass, { once: true });
  }
  const aborted = signals.find((signal) => signal.aborted);
  if (aborted !== undefined) pass.call(aborted);
  return { signal: joined.signal, leave };
}

type Input = Parameters<FetchFunction>[0];

/** The longest body of a `Request` that is stored for a retry, in bytes. */
const MOST_BYTES = 1_048_576;

/** The way in which a request can be sent again. */
interface Replay {
  /** Returns the options for another try. Undefined if the request cannot be sent again. */
  readonly again: () => RequestInit | undefined;
  /** Drops the copy of the body. */
  readonly drop: () => void;
}

const AS_IT_IS: Replay = Object.freeze({ again: () => ({}), drop: () => {} });
const NEVER: Replay = Object.freeze({ again: () => undefined, drop: () => {} });

/**
 * Returns how a request can be sent again. The body of a `Request` is copied while it is sent, up to 1 MiB. The request
 * is not sent again if the body is longer, or was not sent completely when the response arrived. A request with a
 * stream in `init` is not sent again either.
 */
function replayOf(input: Input, init: RequestInit | undefined): Replay {
  const body = init?.body ?? undefined;
  if (body !== undefined) return isKept(body) ? AS_IT_IS : NEVER;
  if (!isRequest(input) || input.body === null) return AS_IT_IS;
  return copyBody(input);
}

/** True if a body can be sent more than once. A stream cannot. */
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

/** True for a `Request`, also if its class comes from another package. */
function isRequest(input: unknown): input is Request {
  const isObject = typeof readProperty(input, "url") === "string";
  return isObject && typeof readProperty(input, "clone") === "function";
}

function copyBody(request: Request): Replay {
  let reader: ReadableStreamDefaultReader<Uint8Array> | undefined;
  try {
    reader = request.clone().body?.getReader();
  } catch {
    // The body was already read. `fetch` will throw an error for this.
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

/** Returns all bytes of a body. Undefined if the body is too long. */
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

/** Returns the options in a `Request`, for a custom `fetch` that may not accept this class. */
function initOf(request: Request): RequestInit {
  const { method, redirect, body } = request;
  const sent = body === null ? {} : { body, duplex: "half" as const };
  return { method, redirect, headers: [...request.headers], ...sent };
}

/** The longest line of an event stream that is read, in characters. Longer lines are skipped. */
const LONGEST_LINE = 65_536;
/**
 * Matches the data of an event without a name if the data begins as an error. OpenRouter sends an id and other fields
 * before the error.
 */
const BEGINS_AS_ERROR =
  /^\{\s*(?:"type"\s*:\s*"(?:error|response\.failed)"|"error"\s*:|[^{}[\]]{0,500},\s*"error"\s*:\s*\{)/;

/**
 * Looks for an error in a stream of server-sent events, and calls `onError` with the data of the first error. LLM APIs
 * may report an overload in the middle of a response that began with a 200.
 */
export function watchEvents(onError: (data: unknown) => void): Tap {
  const decoder = new TextDecoder();
  let rest: string | undefined = "";
  let isNamedError = false;

  function read(line: string): void {
    if (line === "") isNamedError = false;
    else if (/^event: ?error$/.test(line)) isNamedError = true;
    else if (line.startsWith("data:")) {
      const data = line.slice(5).trimStart();
      if (isNamedError || BEGINS_AS_ERROR.test(data)) report(data);
    }
  }

  function report(data: string): void {
    try {
      onError(JSON.parse(data));
      rest = undefined;
    } catch {
      // The data is not JSON, so it is ignored.
    }
  }

  return {
    pass(bytes) {
      if (rest === undefined) return;
      const lines = (rest + decoder.decode(bytes, { stream: true })).split(/\r?\n/);
      const last = lines.pop()!;
      for (const line of lines) if (rest !== undefined) read(line);
      if (rest !== undefined) rest = last.length > LONGEST_LINE ? "" : last;
    },
    end() {},
    cut() {},
  };
}
