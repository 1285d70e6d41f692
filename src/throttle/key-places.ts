import { NO_PLACE, type Place } from "../core/store.ts";

/** This process's places among those who wait for single keys. */
export interface KeyPlaces {
  of(key: string | undefined): Place;
  keep(key: string | undefined, place: Place): void;
  clear(): void;
}

export function createKeyPlaces(): KeyPlaces {
  const places = new Map<string, Place>();

  return {
    of: (key) => (key !== undefined && places.get(key)) || NO_PLACE,
    keep(key, place) {
      if (key === undefined) return;
      if (isNone(place)) places.delete(key);
      else places.set(key, place);
    },
    clear: () => places.clear(),
  };
}

/** Whether an asker waits for nothing. */
export function isNone({ turnUs, sinceUs }: Place): boolean {
  return turnUs === 0 && sinceUs === 0;
}
