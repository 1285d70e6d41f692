import type { Logger } from "../core/logger.ts";
import { MOST_RETURNED, type Place, type Store } from "../core/store.ts";
import type { Group } from "./group.ts";
import type { HeldSlot } from "./held-slots.ts";
import type { Knowledge } from "./known-terms.ts";

/** Gives back what nobody here waits for any more. */
export interface Returns {
  giveBack(
    generation: number,
    group: Group,
    slots: readonly HeldSlot[],
    places: { readonly bucket: Place; readonly key: Place },
  ): void;
  /** Resolves when all has been given back, or is wasted. */
  settled(): Promise<void>;
}

export function createReturns(options: {
  readonly store: Store;
  readonly bucket: string;
  readonly asker: string;
  readonly known: Knowledge;
  readonly logger: Logger;
}): Returns {
  const { store, bucket, asker, known, logger } = options;
  const underWay = new Set<Promise<void>>();

  return {
    giveBack(generation, { name, key, keyLimits, costs }, slots, places) {
      const slotsUs = slots.map(({ slotUs }) => slotUs).slice(0, MOST_RETURNED);
      const wish = { name, key, keyLimits, costs, place: places.key };
      const { terms } = known;
      const request = { bucket, asker, terms, generation, place: places.bucket, wish, slotsUs };
      const returning = store
        .giveBack(request)
        // What cannot be given back is wasted, one horizon at most; no caller waits for it.
        .catch((error: unknown) =>
          logger.warn({ bucket, reason: String(error) }, "Unused slots could not be given back."),
        )
        .finally(() => underWay.delete(returning));
      underWay.add(returning);
    },
    async settled() {
      await Promise.all(underWay);
    },
  };
}
