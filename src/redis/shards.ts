import HashRing from "hashring";

/** How many points of the ring each server has: so that a fourth one takes about a quarter of what three had. */
const POINTS = 150;

/** Tells by name which of several independent servers holds it; who comes or goes moves no more than its own part. */
export function createShards(urls: readonly string[]): (name: string) => string {
  const urlOf = new Map(urls.map((url) => [placeOf(url), url]));
  const places = [...urlOf.keys()].map((place) => [place, { vnodes: POINTS }] as const);
  const ring = new HashRing(Object.fromEntries(places));
  return (name) => urlOf.get(ring.get(name))!;
}

/** Where a server is: another password for it moves nothing. */
export function placeOf(url: string): string {
  const { hostname, port, pathname } = new URL(url);
  return `${hostname}:${port === "" ? "6379" : port}${pathname === "/" ? "" : pathname}`;
}
