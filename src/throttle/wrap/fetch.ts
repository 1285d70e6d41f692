import { setMaxListeners } from "node:events";
import { InvalidOptionError } from "../../core/errors.ts";
import type { OwnedBucket } from "../bucket.ts";
import {
  optionsReader,
  readFetchOverrides,
  type CallOptions,
  type FetchFunction,
  type FetchOptions,
  type OptionsOfCall,
  type SettleBy,
  type SettledCost,
  type ThrottledFetch,
} from "../call-options.ts";
import type { Cost } from "../costs.ts";
import { readAnswer } from "../feedback/answer.ts";
import type { Slot } from "../slot/slot.ts";
import { copyOf, streamResponse, type ResponseCopy } from "./response-stream.ts";

/** The first try, and two more. */
const MOST_TRIES = 3;
/** A server that answers 503 may have begun: only what can be done twice is tried again. */
const SAFE_TWICE = new Set(["GET", "HEAD", "OPTIONS", "PUT", "DELETE"]);

/** A request as it is sent, again if need be. */
interface Sent {
  readonly input: Parameters<FetchFunction>[0];
  readonly init: RequestInit | undefined;
  readonly signal: AbortSignal | undefined;
}

/** One try of a request, and the response to it. */
interface Tried {
  readonly slot: Slot;
  readonly response: Response;
  /** Whether the call lasts until its response has streamed. */
  readonly isHeld: boolean;
  /** Gives back what the call holds. */
  readonly end: () => void;
}

type RequestOptions = OptionsOfCall<CallOptions>;

export function createFetch(bucket: OwnedBucket, options: CallOptions = {}): ThrottledFetch {
  const optionsOf = optionsReader("fetch.with()", options);

  async function throttledFetch(
    given: Parameters<FetchFunction>[0],
    givenInit?: RequestInit,
  ): Promise<Response> {
    const own = optionsOf([given, givenInit] as never[]);
    const isRequest = hasInheritedOptions(givenInit);
    const input = isRequest ? new Request(given, givenInit) : given;
    const init = isRequest ? undefined : givenInit;
    const signal = signalOf(input, init);
    const either = joinSignals([signal, own.signal]);
    try {
      return await tryUntilTaken({ input, init, signal }, { ...own, signal: either.signal });
    } finally {
      either.leave();
    }
  }

  async function tryUntilTaken(sent: Sent, own: RequestOptions): Promise<Response> {
    const isReplayable = canReplay(sent.input, sent.init);
    let slot = await bucket.drawByHand(own);
    for (let attempt = 1; ; attempt++) {
      const tried = await send(sent, slot, own);
      const { response } = tried;
      const { isRefusal } = bucket.reportOutcome(response, slot, own.cost, own.feedback);
      const mayTryAgain = isReplayable && isRefusal && isRefused(response, methodOf(sent));
      const isLast = attempt === MOST_TRIES || !mayTryAgain;
      if (isLast) return handOver(tried, own);
      slot.release();
      // Redis may meet a new draw before the cooldown, as when it has to load that script first.
      await Promise.all([bucket.outcomesReported(), settleRefused(tried, own.cost)]);
      const next = await drawAgain(own, tried);
      if (next === undefined) return handOver(tried, own);
      drop(tried);
      slot = next;
    }
  }

  /** A slot for another try; undefined when there is none to be had, so that the last response is the answer. */
  async function drawAgain(own: RequestOptions, last: Tried): Promise<Slot | undefined> {
    try {
      return await bucket.drawByHand(own);
    } catch (error) {
      if (own.signal?.aborted !== true) return undefined;
      drop(last);
      throw error;
    }
  }

  async function send(
    { input, init, signal }: Sent,
    slot: Slot,
    { cost, feedback }: RequestOptions,
  ): Promise<Tried> {
    const isHeld = slot.hasLease;
    const either = joinSignals([signal, isHeld ? slot.signal : undefined]);
    const end = (): void => {
      slot.release();
      either.leave();
    };
    try {
      const ended = { ...init, signal: either.signal ?? null };
      const response = await globalThis.fetch(input, ended);
      return { slot, response, isHeld, end };
    } catch (error) {
      end();
      bucket.reportOutcome(error, slot, cost, feedback);
      throw error;
    }
  }

  /** A call runs until its response has streamed: its lease ends with the last byte. */
  function handOver({ slot, response, isHeld, end }: Tried, { settle }: RequestOptions): Response {
    if (settle === undefined) return isHeld ? streamResponse(response, end) : response;
    const copy = copyOf(response);
    bucket.settleByResult(() => readCost(settle, copy), response, slot);
    return streamResponse(response, end, copy);
  }

  const withOptions = (given: FetchOptions): ThrottledFetch =>
    createFetch(bucket, { ...options, ...readFetchOverrides("fetch.with()", given) });
  return Object.assign(throttledFetch, { with: withOptions });
}

/** The cost that a response states; undefined if its caller did not read all of it. */
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

/** This response is not handed to anybody; it does not matter if its connection breaks. */
function drop({ response, end }: Tried): void {
  end();
  response.body?.cancel().catch(() => {});
}

/** Whether a spread would lose these options: those of a Request are getters of its class. */
function hasInheritedOptions(init: RequestInit | null | undefined): boolean {
  const names = ["method", "headers", "body", "signal", "redirect"];
  return names.some((name) => init && name in init && !Object.hasOwn(init, name));
}

/**
 * The signal of a request, as `fetch` itself takes it: null replaces that of a Request.
 *
 * @throws {@link InvalidOptionError} when it is no AbortSignal.
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
  return input instanceof Request ? input.signal : undefined;
}

/** Whether a response that the bucket took for a refusal allows another try of the same request. */
function isRefused(response: Response, method: string): boolean {
  if (response.status === 429) return true;
  return SAFE_TWICE.has(method) && readAnswer(response, Date.now())?.isLimited === true;
}

/**
 * A request that was refused with a 429 used nothing but a call, which most downstreams count all the same. It is
 * settled here, since no caller sees a response that is followed by another try. After a 503 the estimate holds: work
 * may have begun.
 */
async function settleRefused({ response, slot }: Tried, cost: Cost | undefined): Promise<void> {
  if (response.status !== 429 || typeof cost !== "object") return;
  const units = Object.keys(cost).filter((unit) => unit !== "calls");
  if (units.length === 0) return;
  // By now the policy may have changed, and may not count these units any more.
  await slot.settle(Object.fromEntries(units.map((unit) => [unit, 0]))).catch(() => {});
}

function methodOf({ input, init }: Sent): string {
  // fetch itself converts any value to a string.
  return String(init?.method ?? (input instanceof Request ? input.method : "GET")).toUpperCase();
}

/** Whether a request can be sent again: a body that streams can be sent once only. */
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

/**
 * One signal in place of several, undefined if there is none; `leave` ends the listening to them. `AbortSignal.any`
 * leaves something on each signal for as long as that signal lives.
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
    // One signal may end a hundred calls; Node would warn of a leak.
    setMaxListeners(0, signal);
    signal.addEventListener("abort", pass, { once: true });
  }
  const aborted = signals.find((signal) => signal.aborted);
  if (aborted !== undefined) pass.call(aborted);
  return { signal: joined.signal, leave };
}
