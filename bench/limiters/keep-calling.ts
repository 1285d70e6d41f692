import type { Driver } from "./contender.ts";

export interface CallOptions {
  readonly callers: number;
  /** Waits until a call may start. Calls `onArrival`, unless the limiter already does so. */
  readonly call: () => Promise<unknown>;
}

/** Runs a closed loop with a fixed number of callers. Each caller waits again as soon as its call has started. */
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
      // When the limiter closes, it rejects the callers that still wait.
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

export interface NotedCallOptions extends Pick<CallOptions, "callers"> {
  /** Resolves with the notes on the call once the call has started. */
  readonly call: () => Promise<readonly number[]>;
}

/** Does the same as `keepCalling`, and records notes on each call, see {@link Driver}. */
export function keepNoting({
  callers,
  call,
}: NotedCallOptions): Required<Pick<Driver, "start" | "stop" | "notes">> {
  const notes: number[] = [];
  const calling = keepCalling({ callers, call: async () => notes.push(...(await call())) });
  return { ...calling, notes: () => Float64Array.from(notes) };
}
