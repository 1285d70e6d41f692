import type { Driver } from "./contender.ts";

export interface CallOptions {
  readonly callers: number;
  /** Waits until a call may start; calls `onArrival` unless the limiter does that itself. */
  readonly call: () => Promise<unknown>;
}

/** Runs a closed loop: a fixed number of callers, each of which waits again as soon as its call has left. */
export function keepCalling({
  callers,
  call,
}: CallOptions): Pick<Driver, "stop"> & { start(onReturn: () => void): void } {
  let isStopped = false;

  async function loop(onReturn: () => void): Promise<void> {
    try {
      while (!isStopped) {
        await call();
        onReturn();
      }
    } catch (error) {
      // A closed limiter rejects the callers that still wait.
      if (!isStopped) throw error;
    }
  }

  return {
    start(onReturn) {
      for (let caller = 0; caller < callers; caller++) void loop(onReturn);
    },
    stop() {
      isStopped = true;
    },
  };
}
