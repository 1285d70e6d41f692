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
  return new HttpProblem(499, "The client hung up.");
}

/** Calls back when the caller hangs up before all of its answer was sent; at once if it has. */
export function whenHungUp({ raw }: FastifyReply, act: () => void): void {
  if (raw.closed) {
    if (!raw.writableFinished) act();
    return;
  }
  raw.once("close", () => {
    if (!raw.writableFinished) act();
  });
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
      reply.raw.once("close", () => waiting.delete(ending));
      whenHungUp(reply, () => {
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
