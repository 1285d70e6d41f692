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

export interface NotedCallOptions extends Pick<CallOptions, "callers"> {
  /** Resolves with the notes on the call once it has left. */
  readonly call: () => Promise<readonly number[]>;
}

/** The same for calls on which notes are made, see {@link Driver}. */
export function keepNoting({
  callers,
  call,
}: NotedCallOptions): Required<Pick<Driver, "start" | "stop" | "notes">> {
  const notes: number[] = [];
  const calling = keepCalling({ callers, call: async () => notes.push(...(await call())) });
  return { ...calling, notes: () => Float64Array.from(notes) };
}
