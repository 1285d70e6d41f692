import type { ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { ClosedError } from "../../../core/errors.ts";
import { hungUp, whenOver } from "../../decide/caller.ts";

/** A client that waits: for its slot, or for an answer. */
export interface Pending {
  /** Ends the wait, or the call. */
  readonly ending: AbortController;
  /** Whether it waits for a slot: then nothing is lost if it is refused. */
  isWaiting: boolean;
  /** Its call, while there is one: it is ended without a listener for each, which the signal of a connection keeps for long. */
  call: { abort(reason: unknown): void } | undefined;
}

/** All requests that are under way. */
export interface Pendings {
  /**
   * One that begins.
   *
   * @throws {@link ClosedError} after `close()`.
   */
  of(raw: ServerResponse): Pending;
  /** It waits for a slot once more; it is refused if it is too late for that. */
  wait(pending: Pending): void;
  /** Refuses those that wait for a slot. */
  close(): void;
}

/**
 * Requests of one connection that come one after another share a controller, since nothing ends one of them but what ends
 * the connection: to make one for each would take as long as to parse the request.
 */
export function createPendings(): Pendings {
  const idle = new WeakMap<Socket, AbortController>();
  const all = new Set<Pending>();
  let isClosed = false;

  /** Requests that are sent without waiting for the answers before get one each. */
  function take(socket: Socket): AbortController {
    const found = idle.get(socket);
    if (found === undefined) return new AbortController();
    idle.delete(socket);
    return found;
  }

  return {
    of(raw) {
      if (isClosed) throw new ClosedError("This server");
      // The answer itself has none while it waits behind others.
      const { socket } = raw.req;
      const pending: Pending = { ending: take(socket), isWaiting: true, call: undefined };
      all.add(pending);
      whenOver(raw, (isHungUp) => {
        all.delete(pending);
        if (isHungUp) {
          pending.ending.abort(hungUp());
          pending.call?.abort(pending.ending.signal.reason);
        } else if (!pending.ending.signal.aborted) idle.set(socket, pending.ending);
      });
      return pending;
    },
    wait(pending) {
      pending.isWaiting = true;
      if (isClosed) pending.ending.abort(new ClosedError("This server"));
    },
    close() {
      isClosed = true;
      for (const { ending, isWaiting } of all) {
        if (isWaiting) ending.abort(new ClosedError("This server"));
      }
    },
  };
}
