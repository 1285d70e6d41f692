import type { Driver } from "./contender.ts";

export interface CallOptions {
  readonly callers: number;
  /** Waits for leave to call, and calls `onArrival` unless the limiter does so itself. */
  readonly call: () => Promise<unknown>;
}

/** A closed loop: a fixed number of callers, each of which waits again as soon as it has left. */
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
      // Limiters that are closed fail those who still wait.
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
