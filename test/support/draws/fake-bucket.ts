import type { Bucket } from "../../../src/throttle/bucket.ts";
import type { ThrottledOptions } from "../../../src/throttle/call-options.ts";

/** A bucket whose slots come at once; it notes the arguments of each call that it paced. */
export function createFakeBucket() {
  const paced: unknown[][] = [];
  const given: unknown[] = [];
  const throttled = (fn: (...args: never[]) => unknown, options?: ThrottledOptions<typeof fn>) => {
    given.push(options);
    return async function (this: unknown, ...args: never[]): Promise<unknown> {
      paced.push(args);
      return Reflect.apply(fn, this, args);
    };
  };
  return { bucket: { throttled } as unknown as Pick<Bucket, "throttled">, paced, given };
}
