import type { ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { ClosedError } from "../../../core/errors.ts";
import { hungUp, whenOver } from "../../decide/caller.ts";

/** A client that waits for a slot or for a response. */
export interface Pending {
  /** Ends the client's wait or its call. */
  readonly ending: AbortController;
  /** True while the request waits for a slot. A rejection then loses nothing. */
  isWaiting: boolean;
  /**
   * The call in progress. It is aborted directly, because a listener for each call on the
   * connection's signal would stay in memory for long.
   */
  call: { abort(reason: unknown): void } | undefined;
}

/** All requests in progress. */
export interface Pendings {
  /**
   * Adds a request.
   *
   * @throws {@link ClosedError} after `close()`.
   */
  of(raw: ServerResponse): Pending;
  /** Marks a request as waiting for a slot again. After `close()`, rejects the request. */
  wait(pending: Pending): void;
  /** Rejects the requests that wait for a slot. */
  close(): void;
}

/**
 * Tracks requests in progress. Consecutive requests of one connection share a controller, because
 * only the end of the connection ends any of them. Creating a controller for each request would
 * take as long as parsing the request.
 */
export function createPendings(): Pendings {
  const idle = new WeakMap<Socket, AbortController>();
  const all = new Set<Pending>();
  let isClosed = false;

  /** Returns the controller of a connection. Pipelined requests get separate controllers. */
  function take(socket: Socket): AbortController {
    const found = idle.get(socket);
    if (found === undefined) return new AbortController();
    idle.delete(socket);
    return found;
  }

  return {
    of(raw) {
      if (isClosed) throw new ClosedError("This server");
      // Read the socket from the request, because a response has no socket while it waits behind
      // others.
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
