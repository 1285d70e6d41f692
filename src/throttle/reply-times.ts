import { HORIZON_US } from "../core/limit-makers.ts";
import type { Drawn } from "../core/draw-messages.ts";
import { createBucketClock } from "./bucket-clock.ts";

/** When a reply came, on `performance.now()`. */
export interface Received {
  readonly arrivedMs: number;
  /** How far this process's clock runs ahead of the bucket's. */
  readonly offsetMs: number;
  /** It lay about, in a process that stood still or on the wire: its slots may have passed already. */
  readonly isStale: boolean;
}

/** When replies were written and came, on the bucket's clock and this process's. */
export interface ReplyTimes {
  /** When the bucket was drawn from last, by its own clock; 0: never. */
  readonly drewUs: number;
  /** Takes in a reply that came just now. */
  read(reply: Drawn): Received;
}

export function createReplyTimes(): ReplyTimes {
  const clock = createBucketClock();
  let usualTookMs = Infinity;
  let drewUs = 0;

  return {
    get drewUs() {
      return drewUs;
    },
    read({ nowUs, sentAtMs }) {
      const arrivedMs = performance.now();
      const tookMs = arrivedMs - sentAtMs;
      // Redis has lost the bucket: what was seen of its clock says nothing any more.
      if (nowUs < drewUs) clock.reset();
      drewUs = nowUs;
      const isStale = tookMs > usualTookMs + HORIZON_US / 1_000;
      // A way that has become longer for good is the usual one from now on.
      usualTookMs = isStale ? tookMs : Math.min(usualTookMs, tookMs);
      return { arrivedMs, offsetMs: clock.sample(arrivedMs, nowUs), isStale };
    },
  };
}
