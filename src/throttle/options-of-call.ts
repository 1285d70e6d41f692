import { isThenable } from "../core/describe.ts";
import { InvalidOptionError } from "../core/errors.ts";
import { readResolved, type CallOptions, type DrawOptions } from "./draw-options.ts";

/** How each call draws: all alike, unless key or cost depend on the arguments. */
export function optionsReader(where: string, given: CallOptions): (args: never[]) => DrawOptions {
  const { priority, maxWaitMs, signal, key, cost } = given;
  if (typeof key !== "function" && typeof cost !== "function") {
    const options = Object.freeze({ priority, maxWaitMs, signal, key, cost });
    return () => options;
  }

  function answerOf<T>(option: string, of: T | ((...args: never[]) => T), args: never[]): T {
    if (typeof of !== "function") return of;
    const answer = (of as (...args: never[]) => T)(...args);
    if (!isThenable(answer)) return answer;
    const remedy = "let the function answer at once, and await what it needs before the call";
    throw new InvalidOptionError({ where, option, value: answer, remedy });
  }

  return (args) => {
    const own = readResolved(where, {
      key: answerOf("key", key, args),
      cost: answerOf("cost", cost, args),
    });
    return { priority, maxWaitMs, signal, key: own.key, cost: own.cost };
  };
}
