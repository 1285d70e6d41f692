import { NO_PLACE, type Place } from "../core/store.ts";

/** This process's places among those who wait in a bucket. */
export interface LinePlaces {
  /** Among those who wait for the bucket itself. */
  shared: Place;
  /** Among those who wait for one key. */
  of(key: string | undefined): Place;
  keep(key: string | undefined, place: Place): void;
  /** Another generation has begun: its turns are others, but who waited for a lease does so since then. */
  forgetTurns(): void;
}

export function createLinePlaces(): LinePlaces {
  const ofKeys = new Map<string, Place>();

  return {
    shared: NO_PLACE,
    of: (key) => (key !== undefined && ofKeys.get(key)) || NO_PLACE,
    keep(key, place) {
      if (key === undefined) return;
      if (isNone(place)) ofKeys.delete(key);
      else ofKeys.set(key, place);
    },
    forgetTurns() {
      this.shared = withoutTurn(this.shared);
      for (const [key, place] of ofKeys) this.keep(key, withoutTurn(place));
    },
  };
}

function withoutTurn({ sinceUs }: Place): Place {
  return { ...NO_PLACE, sinceUs };
}

/** Whether an asker waits for nothing. */
export function isNone({ turnUs, sinceUs }: Place): boolean {
  return turnUs === 0 && sinceUs === 0;
}
