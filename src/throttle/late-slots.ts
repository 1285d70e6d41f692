import { HORIZON_US } from "../core/limit-makers.ts";

/** Decides which slots are used although they come late. */
export interface LateSlots {
  /** Slots are looked at anew. */
  look(): void;
  /** Whether a slot may be used that comes `lateMs` late, where `mostLateMs` is how late any may. */
  mayGo(lateMs: number, mostLateMs: number): boolean;
}

const HORIZON_MS = HORIZON_US / 1_000;
/** So many looks in a row may find nothing but slots that are too late. */
const MOST_LOST = 3;

/**
 * A slot that comes too late is drawn again: a process that was frozen must not fire its old slots in a clump. But where
 * a process is busy whenever a reply comes, the next one is too late as well, for as long as it takes the bucket's clock
 * to hold such replies for usual. So after three looks that found only late slots, one goes at each until one is in time:
 * late by a horizon at most, and never two at once.
 */
export function createLateSlots(): LateSlots {
  let lost = 0;
  let wasInTime = false;
  let wasLate = false;
  let hasGoneLate = false;

  return {
    look() {
      if (wasInTime) lost = 0;
      else if (wasLate) lost += 1;
      wasInTime = false;
      wasLate = false;
      hasGoneLate = false;
    },
    mayGo(lateMs, mostLateMs) {
      if (lateMs <= mostLateMs) {
        wasInTime = true;
        return true;
      }
      wasLate = true;
      if (lost < MOST_LOST || wasInTime || hasGoneLate || lateMs > HORIZON_MS) return false;
      hasGoneLate = true;
      return true;
    },
  };
}
