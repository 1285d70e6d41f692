import type { Dispatcher } from "undici";

/** Receives the bytes of a response. */
export interface Sink {
  /** Returns false if the sink wants no more bytes until {@link Incoming.resume} is called. */
  write(chunk: Buffer): boolean;
  end(last?: Buffer): void;
  /** Called when the response broke off or was aborted. */
  fail(reason: unknown): void;
}

/** Receives the head of a response. */
export interface ResponseReceiver {
  /** Called with the head of the response. `headers` contains names and values in alternation. */
  answered(status: number, headers: string[], body: Incoming): void;
  failed(reason: unknown): void;
}

/**
 * The most bytes of a body that are kept until the body's destination is known. The upstream is
 * then paused.
 */
const MOST_KEPT_BYTES = 65_536;

/**
 * A response of an upstream, as its bytes arrive.
 *
 * The class is an undici handler and not a stream. For a short response, a stream would take longer
 * than receiving and sending the response.
 */
export class Incoming implements Dispatcher.DispatchHandler {
  /**
   * True if the connection has already carried another response. The upstream may have closed such
   * a connection by now.
   */
  isOnUsedConnection = false;
  readonly #receiver: ResponseReceiver;
  readonly #signal: AbortSignal | undefined;
  #controller: Dispatcher.DispatchController | undefined;
  #sink: Sink | undefined;
  #kept: Buffer[] = [];
  #keptBytes = 0;
  #isAnswered = false;
  #isOver = false;
  #failure: { readonly reason: unknown } | undefined;

  /** `signal` can end the request at any time. */
  constructor(receiver: ResponseReceiver, signal: AbortSignal | undefined) {
    this.#receiver = receiver;
    this.#signal = signal;
    signal?.addEventListener("abort", this, { once: true });
  }

  /** True if the complete response has arrived and is kept. */
  get isWhole(): boolean {
    return this.#isOver && this.#failure === undefined;
  }

  /** True if part of the body is kept. */
  get hasBytes(): boolean {
    return this.#kept.length > 0;
  }

  /** Sends all further bytes of the body to the sink, beginning with the kept bytes. */
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

  /** Called when the sink has room again. */
  resume(): void {
    if (!this.#isOver) this.#controller?.resume();
  }

  /** Ends the request at any stage. */
  abort(reason: unknown): void {
    if (this.#isOver) return;
    const error = reason instanceof Error ? reason : new Error("the request was aborted");
    // The request may have no connection yet.
    if (this.#controller === undefined) this.#fail(error);
    else this.#controller.abort(error);
  }

  /** Called when the signal is aborted. */
  handleEvent(): void {
    this.abort(this.#signal?.reason);
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    if (this.#failure !== undefined) controller.abort(this.#failure.reason as Error);
  }

  onResponseStart({ rawHeaders }: Dispatcher.DispatchController, status: number): void {
    // Ignore informational responses, which precede the real response.
    if (status < 200) return;
    this.#isAnswered = true;
    this.#receiver.answered(status, textsOf(rawHeaders as readonly Buffer[]), this);
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
    if (!this.#isAnswered) this.#receiver.failed(reason);
    this.#sink?.fail(reason);
  }

  #end(): void {
    this.#isOver = true;
    this.#signal?.removeEventListener("abort", this);
  }
}

/** Converts headers byte by byte, so that they pass unchanged. */
function textsOf(headers: readonly Buffer[]): string[] {
  return headers.map((each) => each.toString("latin1"));
}
