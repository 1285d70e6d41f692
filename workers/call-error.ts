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
