import type { ServerResponse } from "node:http";
import type { FastifyBaseLogger, FastifyReply } from "fastify";
import { ClosedError } from "../../core/errors.ts";
import { HttpProblem } from "../problem.ts";

/** A client that waits for a response. */
export interface Caller {
  /** Aborted when the client disconnects or the server closes. */
  readonly signal: AbortSignal;
  /**
   * Calls `act` if the client disconnects before its response is sent. Calls `act` immediately if
   * the client has already disconnected.
   */
  onHangUp(act: () => void): void;
  readonly log: FastifyBaseLogger;
}

/** All clients that wait for a response from this server. */
export interface Callers {
  of(reply: FastifyReply): Caller;
  /** Ends all waits immediately, because the server closes. */
  close(): void;
}

/** Creates the abort reason for a client that has disconnected. No client reads this error. */
export function hungUp(): HttpProblem {
  return new HttpProblem("ERR_CLIENT_GONE", "The client hung up.");
}

/**
 * Calls `act` if the client disconnects before its response is sent. Calls `act` immediately if the
 * client has already disconnected.
 */
export function whenHungUp({ raw }: FastifyReply, act: () => void): void {
  whenOver(raw, (isHungUp) => {
    if (isHungUp) act();
  });
}

/**
 * Calls `act` once, when the response was sent or the client has disconnected. Calls `act`
 * immediately if either has already happened.
 */
export function whenOver(raw: ServerResponse, act: (isHungUp: boolean) => void): void {
  const { socket } = raw.req;
  if (raw.closed || socket.destroyed) return act(!raw.writableFinished);
  // Watch the socket too. If the connection ends, Node does not notify a pipelined response that
  // waits behind others.
  const isQueued = raw.socket === null;
  function end(): void {
    if (isQueued) {
      raw.off("close", end);
      socket.off("close", end);
    }
    act(!raw.writableFinished);
  }
  // A response emits "close" only once.
  raw.on("close", end);
  // Remove the listener limit, because any number of responses may wait behind each other.
  if (isQueued) socket.setMaxListeners(0).on("close", end);
}

export function createCallers(): Callers {
  const waiting = new Set<AbortController>();
  let isClosed = false;

  return {
    of(reply) {
      const ending = new AbortController();
      const acts: (() => void)[] = [];
      let isGone = false;
      waiting.add(ending);
      whenOver(reply.raw, (isHungUp) => {
        waiting.delete(ending);
        if (!isHungUp) return;
        isGone = true;
        ending.abort(hungUp());
        for (const act of acts) act();
      });
      if (isClosed) ending.abort(new ClosedError("This server"));
      return {
        signal: ending.signal,
        onHangUp(act) {
          if (isGone) act();
          else acts.push(act);
        },
        log: reply.log,
      };
    },
    close() {
      isClosed = true;
      for (const ending of waiting) ending.abort(new ClosedError("This server"));
    },
  };
}

let turn: Promise<void> | undefined;

/**
 * Resolves when all requests that have arrived by now were read. Their draws then share one script.
 * Otherwise the first draw would be sent alone, and the others would wait for its reply.
 */
export function endOfTurn(): Promise<void> {
  return (turn ??= new Promise((resolve) => {
    setImmediate(() => {
      turn = undefined;
      resolve();
    });
  }));
}
