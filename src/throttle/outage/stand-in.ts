import type { Store } from "../../core/store.ts";

/** What serves a bucket's calls while Redis does not answer. */
export interface StandIn extends Pick<
  Store,
  "draw" | "giveBack" | "settle" | "renew" | "release" | "steer"
> {
  readonly nowUs: () => number;
}

/** What is known of a bucket when an outage begins. */
export interface Known {
  /** The bucket's clock as Redis told it; undefined if it was never reached. */
  readonly nowUs: (() => number) | undefined;
  /** How many replicas were last seen to draw; 0: none ever. */
  readonly replicas: number;
  /** How many calls run here that hold leases from Redis: all, or those of one key. */
  readonly runningOf: (key?: string) => number;
}

/** This process's own clock, in µs. */
export function ownUs(): number {
  return Math.floor((performance.timeOrigin + performance.now()) * 1_000);
}
