import { readResolved, type CallOptions, type DrawOptions } from "./draw-options.ts";

/** How each call draws: all alike, unless key or cost depend on the arguments. */
export function optionsReader(where: string, given: CallOptions): (args: never[]) => DrawOptions {
  const { priority, maxWaitMs, signal, key, cost } = given;
  if (typeof key !== "function" && typeof cost !== "function") {
    const options = Object.freeze({ priority, maxWaitMs, signal, key, cost });
    return () => options;
  }
  return (args) => {
    const own = readResolved(where, {
      key: typeof key === "function" ? key(...args) : key,
      cost: typeof cost === "function" ? cost(...args) : cost,
    });
    return { priority, maxWaitMs, signal, key: own.key, cost: own.cost };
  };
}
