import { NO_PLACE } from "../core/store.ts";
import type { AskTimes } from "./ask-times.ts";
import type { Books } from "./books.ts";
import type { Group } from "./group.ts";
import type { HeldSlot } from "./held-slots.ts";
import { isNone, type LinePlaces } from "./line-places.ts";
import type { Returns } from "./returns.ts";

/** What nobody here needs any more, and another replica can use: slots, and places in lines. */
export interface Leftovers {
  /** Somebody may have left this group. */
  leftBy(group: Group): void;
  /** Gives back the slots that nobody here waits for, and the places of lines that are empty. */
  giveBack(generation: number): void;
}

export interface LeftoversParts {
  readonly books: Books;
  readonly linePlaces: LinePlaces;
  readonly returns: Returns;
  readonly askTimes: AskTimes;
}

export function createLeftovers(parts: LeftoversParts): Leftovers {
  const { books, linePlaces, returns, askTimes } = parts;
  const left = new Set<Group>();

  function isWaitedFor(key: string | undefined): boolean {
    return key !== undefined && books.waitingIn.ofKey(key).size > 0;
  }

  function giveUp(generation: number, group: Group, slots: readonly HeldSlot[]): void {
    const isLast = books.waiting === 0;
    const shared = isLast ? linePlaces.shared : NO_PLACE;
    const place = linePlaces.of(group.key);
    const own = isNone(place) || isWaitedFor(group.key) ? NO_PLACE : place;
    // Who comes next asks anew: nobody here hears of changes until then.
    books.waitingIn.holdBack(group, 0);
    if (slots.length === 0 && isNone(own) && isNone(shared)) return;
    if (!isNone(own)) linePlaces.keep(group.key, NO_PLACE);
    returns.giveBack(generation, group, slots, { bucket: shared, key: own });
    if (!isLast) return;
    linePlaces.shared = NO_PLACE;
    askTimes.retryNow();
  }

  return {
    leftBy: (group) => void left.add(group),
    giveBack(generation) {
      books.takeSurplus((group, slots) => giveUp(generation, group, slots));
      for (const group of left) if (group.isIdle) giveUp(generation, group, []);
      left.clear();
    },
  };
}
