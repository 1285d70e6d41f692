import type { Dispatcher } from "undici";

/** Where the bytes of an answer go. */
export interface Sink {
  /** Returns false if it wants no more until {@link Incoming.resume}. */
  write(chunk: Buffer): boolean;
  end(last?: Buffer): void;
  /** The answer broke off, or was aborted. */
  fail(reason: unknown): void;
}

/** What waits for the head of an answer. */
export interface Asker {
  /** Names and values of headers, one after another. */
  answered(status: number, headers: string[], body: Incoming): void;
  failed(reason: unknown): void;
}

/** How much of a body is kept while it is not known yet where it goes; then its sender has to wait. */
const MOST_KEPT_BYTES = 65_536;

/**
 * An answer of an upstream, as its bytes come in.
 *
 * A handler of undici's, and no stream: to pass short answers through one would take longer than to receive and send
 * them.
 */
export class Incoming implements Dispatcher.DispatchHandler {
  /** Whether its connection has already answered another request, and may have been closed by the upstream meanwhile. */
  isOnUsedConnection = false;
  readonly #asker: Asker;
  readonly #signal: AbortSignal | undefined;
  #controller: Dispatcher.DispatchController | undefined;
  #sink: Sink | undefined;
  #kept: Buffer[] = [];
  #keptBytes = 0;
  #isAnswered = false;
  #isOver = false;
  #failure: { readonly reason: unknown } | undefined;

  /** `signal` ends it at any time. */
  constructor(asker: Asker, signal: AbortSignal | undefined) {
    this.#asker = asker;
    this.#signal = signal;
    signal?.addEventListener("abort", this, { once: true });
  }

  /** Whether all of it has come, and is kept. */
  get isWhole(): boolean {
    return this.#isOver && this.#failure === undefined;
  }

  /** Whether some of the body is there. */
  get hasBytes(): boolean {
    return this.#kept.length > 0;
  }

  /** From now on, all goes to the sink: first what was kept. */
  sendTo(sink: Sink): void {
    this.#sink = sink;
    const kept = this.#kept;
    this.#kept = [];
    if (this.isWhole && kept.length === 1) return sink.end(kept[0]);
    let isFull = false;
    for (const chunk of kept) isFull = !sink.write(chunk) || isFull;
    if (this.#failure !== undefined) sink.fail(this.#failure.reason);
    else if (this.#isOver) sink.end();
    else if (isFull) this.#controller?.pause();
    else this.#controller?.resume();
  }

  /** The sink has room again. */
  resume(): void {
    if (!this.#isOver) this.#controller?.resume();
  }

  /** Ends the request, wherever it is. */
  abort(reason: unknown): void {
    if (this.#isOver) return;
    const error = reason instanceof Error ? reason : new Error("the request was aborted");
    // It may not have got a connection yet.
    if (this.#controller === undefined) this.#fail(error);
    else this.#controller.abort(error);
  }

  /** The signal was aborted. */
  handleEvent(): void {
    this.abort(this.#signal?.reason);
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    if (this.#failure !== undefined) controller.abort(this.#failure.reason as Error);
  }

  onResponseStart({ rawHeaders }: Dispatcher.DispatchController, status: number): void {
    // Those above say that the answer follows.
    if (status < 200) return;
    this.#isAnswered = true;
    this.#asker.answered(status, textsOf(rawHeaders as readonly Buffer[]), this);
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#sink !== undefined) {
      if (!this.#sink.write(chunk)) controller.pause();
      return;
    }
    this.#kept.push(chunk);
    this.#keptBytes += chunk.length;
    if (this.#keptBytes > MOST_KEPT_BYTES) controller.pause();
  }

  onResponseEnd(): void {
    this.#end();
    this.#sink?.end();
  }

  onResponseError(_controller: unknown, reason: Error): void {
    this.#fail(reason);
  }

  #fail(reason: unknown): void {
    if (this.#isOver) return;
    this.#end();
    this.#failure = { reason };
    if (!this.#isAnswered) this.#asker.failed(reason);
    this.#sink?.fail(reason);
  }

  #end(): void {
    this.#isOver = true;
    this.#signal?.removeEventListener("abort", this);
  }
}

/** Byte by byte, so that what passes stays as it is. */
function textsOf(headers: readonly Buffer[]): string[] {
  return headers.map((each) => each.toString("latin1"));
}
