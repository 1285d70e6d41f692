import { HORIZON_MS } from "../core/policy/limit-makers.ts";
import type { Drawn } from "../core/store.ts";
import { createBucketClock } from "./bucket-clock.ts";
import { createLeastOfLate } from "./least-of-late.ts";

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
  /** How much before its time a question is to leave, for it to be there then and not before; in ms. */
  readonly leadMs: number;
  /** Takes in a reply that came just now. */
  read(reply: Drawn): Received;
}

/** A question that is there too soon is told to come again: that costs more than one that is a little late. */
const MARGIN_MS = 0.5;

export function createReplyTimes(): ReplyTimes {
  const clock = createBucketClock();
  const tookOfLate = createLeastOfLate();
  let usualTookMs = Infinity;
  let leadMs = 0;
  let drewUs = 0;

  return {
    get drewUs() {
      return drewUs;
    },
    get leadMs() {
      return leadMs;
    },
    read({ nowUs, sentAtMs }) {
      const arrivedMs = performance.now();
      const tookMs = arrivedMs - sentAtMs;
      // Redis has lost the bucket: what was seen of its clock says nothing any more.
      if (nowUs < drewUs) clock.reset();
      drewUs = nowUs;
      const isStale = tookMs > usualTookMs + HORIZON_MS;
      // A way that has become longer for good is the usual one from now on.
      usualTookMs = isStale ? tookMs : Math.min(usualTookMs, tookMs);
      if (!isStale) leadMs = Math.max(0, tookOfLate.sample(arrivedMs, tookMs) - MARGIN_MS);
      return { arrivedMs, offsetMs: clock.sample(arrivedMs, nowUs), isStale };
    },
  };
}
