import { HORIZON_MS } from "../core/policy/limit-makers.ts";

/** Decides which slots are used although they come late. */
export interface LateSlots {
  /** Slots are looked at anew. */
  look(): void;
  /** Whether a slot may be used that comes `lateMs` late, where `mostLateMs` is how late any may. */
  mayGo(lateMs: number, mostLateMs: number): boolean;
}

/** So many looks in a row may find nothing but slots that are too late. */
const MOST_LOST = 3;

/**
 * A slot that comes too late is drawn again: a process that was frozen must not fire its old slots in a clump. But where
 * a process is busy whenever a reply comes, the next one is too late as well, for as long as it takes the bucket's clock
 * to hold such replies for usual. So after three looks that found only late slots, one goes at each until one is in time:
 * late by a horizon at most, and never two at once.
 */
export function createLateSlots(): LateSlots {
  /** Looks in a row that found only late slots, this one among them. */
  let lost = 0;
  /** Whether this look has been counted, or is not to be. */
  let isCounted = false;
  let hasGoneLate = false;

  return {
    look() {
      isCounted = false;
      hasGoneLate = false;
    },
    mayGo(lateMs, mostLateMs) {
      if (lateMs <= mostLateMs) {
        lost = 0;
        isCounted = true;
        return true;
      }
      if (!isCounted) lost += 1;
      isCounted = true;
      if (lost <= MOST_LOST || hasGoneLate || lateMs > HORIZON_MS) return false;
      hasGoneLate = true;
      return true;
    },
  };
}
