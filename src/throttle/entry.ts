import { isByPolicy, type SecondLook } from "./second-look.ts";
import type { Wait, Waits } from "./waiting-call.ts";

/** Lets calls in by the policy that is known here, and those that it refuses by the one in force. */
export interface Entry {
  /** What is thrown by what the policy says is thrown only if no other is in force. While that is looked up, a wait is among `waits`. */
  enter<Options, T>(
    call: (options: Options) => Promise<T>,
    options: Options,
    waits?: Waits,
  ): Promise<T>;
  /** The same for what was refused already. */
  afterLook<T>(refusal: unknown, call: () => T | Promise<T>, waits?: Waits): Promise<T>;
}

/** `assertOpen` throws once nobody is let in any more. */
export function createEntry(lookAgain: SecondLook, assertOpen: () => void): Entry {
  function afterLook<T>(refusal: unknown, call: () => T | Promise<T>, waits?: Waits): Promise<T> {
    if (!isByPolicy(refusal)) throw refusal;
    const enterAgain = (isOther: boolean): T | Promise<T> => {
      if (!isOther) throw refusal;
      assertOpen();
      return call();
    };
    return waits ? goOnUnlessLeft(lookAgain(), waits, enterAgain) : lookAgain().then(enterAgain);
  }

  return {
    afterLook,
    /** Not async, and no closure for each call: they would cost as much as the rest. */
    enter(call, options, waits) {
      try {
        return call(options);
      } catch (error) {
        return afterLook(error, () => call(options), waits);
      }
    },
  };
}

/** Goes on once it is there. Until then it is listed among `waits`, and may be left: nothing follows then. */
function goOnUnlessLeft<Coming, T>(
  coming: Promise<Coming>,
  waits: Waits,
  goOn: (value: Coming) => T | Promise<T>,
): Promise<T> {
  return new Promise((resolve, reject) => {
    let isOver = false;
    /** True for whichever comes first. */
    function end(): boolean {
      const isFirst = !isOver;
      if (isFirst) waits.delete(wait);
      isOver = true;
      return isFirst;
    }
    const wait: Wait = {
      leave(reason) {
        if (end()) reject(reason);
      },
    };
    waits.add(wait);
    // What goes on is listed in the same turn: there is no moment at which a leave would find nothing.
    const andGoOn = (value: Coming): void => {
      if (end()) resolve(goOn(value));
    };
    coming.then(andGoOn).catch((error: unknown) => {
      end();
      reject(error);
    });
  });
}
