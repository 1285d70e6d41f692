import { Discard } from "sluice";

export interface CallLimits {
  /** The time limit for the whole call, including the response body, in ms. */
  readonly timeoutMs: number;
  /** The job's signal, which is aborted when the worker closes or has lost the job. */
  readonly signal: AbortSignal;
  /** The function that sends the request. Defaults to the global `fetch`. */
  readonly fetch?: typeof globalThis.fetch | undefined;
}

/**
 * Sends a request once and reads its response. If `read` throws a CallError or a Discard, rejects with that error. Any
 * other failure rejects with a {@link CallError}.
 */
export async function callInTime<Result>(
  request: { readonly url: string } & RequestInit,
  { timeoutMs, signal, fetch = globalThis.fetch }: CallLimits,
  read: (response: Response) => Promise<Result>,
): Promise<Result> {
  const { url, ...init } = request;
  const stop = new AbortController();
  const late = new CallError(`got no answer within ${timeoutMs} ms`);
  const timer = setTimeout(() => stop.abort(late), timeoutMs);
  const leave = (): void => stop.abort(new CallError("was stopped by its worker"));
  signal.addEventListener("abort", leave, { once: true });
  if (signal.aborted) leave();
  try {
    // Does not follow redirects, because a redirect could lead anywhere. A redirect is treated as an ordinary response.
    const response = await fetch(url, { ...init, redirect: "manual", signal: stop.signal });
    return await read(response);
  } catch (error) {
    throw error instanceof CallError || error instanceof Discard ? error : lost(error);
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", leave);
  }
}

/** Converts an error of `fetch`. Keeps only its code, because its message may contain parts of the request. */
function lost(error: unknown): CallError {
  const { cause } = error as { readonly cause?: { readonly code?: unknown } };
  const code = typeof cause?.code === "string" ? cause.code : "no connection";
  return new CallError(`got no whole answer (${code})`);
}

interface Answered {
  readonly status?: number | undefined;
  readonly headers?: Headers | Readonly<Record<string, string>> | undefined;
}

/**
 * Thrown when a call was not accepted, but may be accepted on another try. Its message is safe to log and to store: it
 * contains no URL, header, payload or key.
 */
export class CallError extends Error {
  override readonly name = "CallError";
  /** The status of the response. The bucket reads the status and headers of this error: a 429 starts a cooldown. */
  readonly status: number | undefined;
  readonly headers: Answered["headers"];

  constructor(message: string, { status, headers }: Answered = {}) {
    super(message);
    this.status = status;
    this.headers = headers;
  }
}

/** Statuses from 400 to 499 after which another try may succeed. */
const PASSING: readonly number[] = [408, 409, 425, 429];

/** True if the same request would get this status every time, so that a retry is useless. */
export function isFinal(status: number): boolean {
  return status >= 400 && status <= 499 && !PASSING.includes(status);
}
