import { setMaxListeners } from "node:events";
import type { OwnedBucket } from "../bucket.ts";
import {
  optionsReader,
  readFetchOverrides,
  type CallOptions,
  type DrawOptions,
  type FetchFunction,
  type FetchOptions,
  type SettleBy,
  type SettledCost,
  type ThrottledFetch,
} from "../call-options.ts";
import type { Cost } from "../costs.ts";
import { readAnswer } from "../feedback/answer.ts";
import type { Slot } from "../slot/slot.ts";
import { copyOf, streamResponse, type AnswerCopy } from "./response-stream.ts";

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

/** One try of a request, and what came of it. */
interface Tried {
  readonly slot: Slot;
  readonly response: Response;
  /** Whether something of the call lasts as long as its answer streams. */
  readonly isHeld: boolean;
  /** The call is over, or nothing of it is to be held any more. */
  readonly end: () => void;
}

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

  async function tryUntilTaken(sent: Sent, waiting: DrawOptions): Promise<Response> {
    const { cost } = waiting;
    const isReplayable = canReplay(sent.input, sent.init);
    let slot = await bucket.draw(waiting);
    for (let attempt = 1; ; attempt++) {
      const tried = await send(sent, slot, cost);
      const { response } = tried;
      const { isRefusal } = bucket.hear(response, slot, cost, options.feedback);
      const mayTryAgain = isReplayable && isRefusal && isRefused(response, methodOf(sent));
      const isLast = attempt === MOST_TRIES || !mayTryAgain;
      if (isLast) return handedOver(tried);
      slot.release();
      // Redis may meet a new draw before the cooldown, as when it has to be given that script first.
      await Promise.all([bucket.heard(), settleRefused(tried, cost)]);
      const next = await drawAgain(waiting, tried);
      if (next === undefined) return handedOver(tried);
      drop(tried);
      slot = next;
    }
  }

  /** A slot for another try; undefined when there is none to be had, and so the last answer stands. */
  async function drawAgain(waiting: DrawOptions, last: Tried): Promise<Slot | undefined> {
    try {
      return await bucket.draw(waiting);
    } catch (error) {
      if (waiting.signal?.aborted !== true) return undefined;
      drop(last);
      throw error;
    }
  }

  async function send({ input, init, signal }: Sent, slot: Slot, cost?: Cost): Promise<Tried> {
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
      bucket.hear(error, slot, cost, options.feedback);
      throw error;
    }
  }

  /** A streamed answer is a call that still runs: its lease ends with its last byte. */
  function handedOver({ slot, response, isHeld, end }: Tried): Response {
    const { settle } = options;
    if (settle === undefined) return isHeld ? streamResponse(response, end) : response;
    const copy = copyOf(response);
    bucket.settleBy(() => readCost(settle, copy), response, slot);
    return streamResponse(response, end, copy);
  }

  const withOptions = (given: FetchOptions): ThrottledFetch =>
    createFetch(bucket, { ...options, ...readFetchOverrides("fetch.with()", given) });
  return Object.assign(throttledFetch, { with: withOptions });
}

/** What an answer says that it came to cost; nothing if its caller has not had it whole. */
async function readCost(
  settle: SettleBy<unknown>,
  copy: AnswerCopy,
): Promise<SettledCost | null | undefined> {
  try {
    return await settle(copy.answer);
  } catch (error) {
    if (copy.isCutShort) return undefined;
    throw error;
  } finally {
    copy.drop();
  }
}

/** Nobody reads this answer, and whether its connection broke meanwhile matters to nobody. */
function drop({ response, end }: Tried): void {
  end();
  response.body?.cancel().catch(() => {});
}

/** Whether these are options that a spread would lose: those of a Request are getters of its class. */
function hasInheritedOptions(init: RequestInit | null | undefined): boolean {
  const names = ["method", "headers", "body", "signal", "redirect"];
  return names.some((name) => init && name in init && !Object.hasOwn(init, name));
}

/** As of `fetch` itself: null takes the signal of a Request away. */
function signalOf(
  input: Parameters<FetchFunction>[0],
  init: RequestInit | undefined,
): AbortSignal | undefined {
  if (init?.signal !== undefined) return init.signal ?? undefined;
  return input instanceof Request ? input.signal : undefined;
}

/** Whether an answer that the bucket took for a refusal says that the same request may come again. */
function isRefused(response: Response, method: string): boolean {
  if (response.status === 429) return true;
  return SAFE_TWICE.has(method) && readAnswer(response, Date.now())?.isLimited === true;
}

/**
 * What was refused used nothing but a call, which most downstreams count all the same; nobody else will tell so of a try
 * that is followed by another. Behind a 503, work may have begun: there the estimate stands.
 */
async function settleRefused({ response, slot }: Tried, cost: Cost | undefined): Promise<void> {
  if (response.status !== 429 || typeof cost !== "object") return;
  const units = Object.keys(cost).filter((unit) => unit !== "calls");
  if (units.length === 0) return;
  // A policy that has come meanwhile may not count these units any more.
  await slot.settle(Object.fromEntries(units.map((unit) => [unit, 0]))).catch(() => {});
}

function methodOf({ input, init }: Sent): string {
  // As fetch does, whatever was given.
  return String(init?.method ?? (input instanceof Request ? input.method : "GET")).toUpperCase();
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

/** One signal in place of several. */
interface JoinedSignal {
  /** Aborted with the first of them; undefined when there is none. */
  readonly signal: AbortSignal | undefined;
  /** Ends the listening to them. */
  leave(): void;
}

/** `AbortSignal.any` leaves something on each signal, for as long as that signal lives: this does not, once it is left. */
function joinSignals(given: readonly (AbortSignal | undefined)[]): JoinedSignal {
  const signals = given.filter((signal) => signal !== undefined);
  if (signals.length < 2) return { signal: signals[0], leave() {} };
  const joined = new AbortController();
  const leave = (): void => {
    for (const signal of signals) signal.removeEventListener("abort", pass);
  };
  function pass(this: AbortSignal): void {
    leave();
    joined.abort(this.reason);
  }
  for (const signal of signals) {
    // One signal may well end a hundred calls; Node would call that a leak.
    setMaxListeners(0, signal);
    signal.addEventListener("abort", pass, { once: true });
  }
  const aborted = signals.find((signal) => signal.aborted);
  if (aborted !== undefined) pass.call(aborted);
  return { signal: joined.signal, leave };
}
