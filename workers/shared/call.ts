import { Discard } from "sluice";

export interface CallLimits {
  /** How long the call may take in all, its answer's body included. */
  readonly timeoutMs: number;
  /** Of the job: its worker closes, or has lost it. */
  readonly signal: AbortSignal;
}

/**
 * Sends a request once and reads its answer. What `read` throws as a CallError or a
 * Discard is passed on; all else that goes wrong rejects with a {@link CallError}.
 */
export async function callInTime<Result>(
  request: { readonly url: string } & RequestInit,
  { timeoutMs, signal }: CallLimits,
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
    // A redirect could lead anywhere, so it is an answer like others.
    const response = await fetch(url, { ...init, redirect: "manual", signal: stop.signal });
    return await read(response);
  } catch (error) {
    throw error instanceof CallError || error instanceof Discard ? error : lost(error);
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", leave);
  }
}

/** Only the code of what fetch threw: its text may hold parts of the request. */
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
 * Thrown when a call was not accepted, and may be if it is tried again.
 * Its message is safe to log and to keep: no address, header, payload or key.
 */
export class CallError extends Error {
  override readonly name = "CallError";
  /** With the headers, what a bucket reads of the answer: a 429 cools it down. */
  readonly status: number | undefined;
  readonly headers: Answered["headers"];

  constructor(message: string, { status, headers }: Answered = {}) {
    super(message);
    this.status = status;
    this.headers = headers;
  }
}

/** Answers of 400 to 499 that may be another one next time. */
const PASSING: readonly number[] = [408, 409, 425, 429];

/** Whether the same request would be answered so again, however often it is sent. */
export function isFinal(status: number): boolean {
  return status >= 400 && status <= 499 && !PASSING.includes(status);
}
