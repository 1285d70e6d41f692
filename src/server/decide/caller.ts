import type { ServerResponse } from "node:http";
import type { FastifyBaseLogger, FastifyReply } from "fastify";
import { ClosedError } from "../../core/errors.ts";
import { HttpProblem } from "../problem.ts";

/** Who waits for an answer. */
export interface Caller {
  /** Aborted when the caller hangs up, or the server closes. */
  readonly signal: AbortSignal;
  /** Calls back when the caller hangs up before all of its answer was sent; at once if it has. */
  onHangUp(act: () => void): void;
  readonly log: FastifyBaseLogger;
}

/** Those who wait for an answer of this server. */
export interface Callers {
  of(reply: FastifyReply): Caller;
  /** The server closes: those who wait are answered now. */
  close(): void;
}

/** The reason of a signal whose caller is gone: nobody reads it. */
export function hungUp(): HttpProblem {
  return new HttpProblem("ERR_CLIENT_GONE", "The client hung up.");
}

/** Calls back when the caller hangs up before all of its answer was sent; at once if it has. */
export function whenHungUp({ raw }: FastifyReply, act: () => void): void {
  whenOver(raw, (isHungUp) => {
    if (isHungUp) act();
  });
}

/** Calls back, once, when all of an answer was sent, or its caller is gone; at once if that is so. */
export function whenOver(raw: ServerResponse, act: (isHungUp: boolean) => void): void {
  const { socket } = raw.req;
  if (raw.closed || socket.destroyed) return act(!raw.writableFinished);
  // Node tells an answer that waits behind others of its connection nothing when the connection ends.
  const isQueued = raw.socket === null;
  function end(): void {
    if (isQueued) {
      raw.off("close", end);
      socket.off("close", end);
    }
    act(!raw.writableFinished);
  }
  // An answer tells it once.
  raw.on("close", end);
  // Any number may wait behind each other.
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
 * Resolves when all requests were read that have come by now: their draws share a script. Without it, the first of them
 * would go alone, and the others would wait for its answer.
 */
export function endOfTurn(): Promise<void> {
  return (turn ??= new Promise((resolve) => {
    setImmediate(() => {
      turn = undefined;
      resolve();
    });
  }));
}
