import { LookingCall, type Bounds } from "./looking-call.ts";
import { isByPolicy, type SecondLook } from "./second-look.ts";
import type { Waits } from "./waiting-call.ts";

/** Lets calls in by the policy that is known here, and those that it refuses by the one in force. */
export interface Entry {
  /**
   * What is thrown by what the policy says is thrown only if no other is in force. While that is looked up, the caller
   * waits as it would in the line: its signal and its `maxWaitMs` hold, and its wait is among `waits`. `call` is given
   * those too, and is told since when, if it comes after a look.
   */
  enter<Options extends Bounds, T>(
    call: (options: Options, waits?: Waits, sinceMs?: number) => Promise<T>,
    options: Options,
    waits?: Waits,
  ): Promise<T>;
  /** The same for what was refused already. */
  afterLook<T>(refusal: unknown, call: () => T | Promise<T>): Promise<T>;
}

/** `assertOpen` throws once nobody is let in any more. */
export function createEntry(bucket: string, lookAgain: SecondLook, assertOpen: () => void): Entry {
  function afterLook<T>(
    refusal: unknown,
    call: () => T | Promise<T>,
    bounds: Bounds = {},
    waits?: Waits,
  ): Promise<T> {
    if (!isByPolicy(refusal)) throw refusal;
    return new Promise((resolve, reject) => {
      const looking = new LookingCall({ bucket, bounds, waits, reject });
      const goOn = (isOther: boolean): void => {
        // What goes on is listed in the same turn: there is no moment at which a leave would find nothing.
        if (!looking.end()) return;
        if (!isOther) throw refusal;
        assertOpen();
        resolve(call());
      };
      lookAgain()
        .then(goOn)
        .catch((error: unknown) => looking.leave(error));
    });
  }

  return {
    afterLook,
    /** Not async, and no closure for each call: they would cost as much as the rest. */
    enter(call, options, waits) {
      try {
        return call(options, waits);
      } catch (error) {
        const sinceMs = performance.now();
        return afterLook(error, () => call(options, waits, sinceMs), options, waits);
      }
    },
  };
}
