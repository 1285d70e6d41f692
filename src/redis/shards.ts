import { createHash } from "node:crypto";
import { LRUCache } from "lru-cache";

/** A point of the ring. Its server holds the names whose hashes lie between the point before and this one. */
interface Point {
  readonly value: number;
  readonly url: string;
}

/** How many hashes each server has: so that a fourth one takes about a quarter of what three had. */
const HASHES = 150;
/** How many points an MD5 hash gives, of 4 bytes each. */
const POINTS_OF_HASH = 4;
/** For so many names the server is remembered: it is looked up with each draw. */
const NAMES_REMEMBERED = 5_000;

/**
 * Tells by name which of several independent servers holds it. A server that comes or goes moves no more than its
 * own part of the names. The points are those of ketama, as libmemcached and others have them. They are as fixed as
 * the layout of the state: with others, names are looked for on the wrong servers.
 */
export function createShards(urls: readonly string[]): (name: string) => string {
  const ring = urls.flatMap(pointsOf).toSorted((a, b) => a.value - b.value);
  const servers = new LRUCache<string, string>({
    max: NAMES_REMEMBERED,
    memoMethod: (name) => (ring[firstFrom(ring, hashOf(name).readUInt32LE())] ?? ring[0]!).url,
  });
  return (name) => servers.memo(name);
}

/** Where a server is: another password for it moves nothing. */
export function placeOf(url: string): string {
  const { hostname, port, pathname } = new URL(url);
  return `${hostname}:${port === "" ? "6379" : port}${pathname === "/" ? "" : pathname}`;
}

function pointsOf(url: string): Point[] {
  const place = placeOf(url);
  const hashes = Array.from({ length: HASHES }, (_, index) => hashOf(`${place}-${index}`));
  return hashes.flatMap((hash) =>
    Array.from({ length: POINTS_OF_HASH }, (_, part) => ({
      value: hash.readUInt32LE(part * 4),
      url,
    })),
  );
}

/** The index of the first point that is no less than the value; the ring's length if all are less. */
function firstFrom(ring: readonly Point[], value: number): number {
  let low = 0;
  let high = ring.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ring[middle]!.value < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

function hashOf(text: string): Buffer {
  return createHash("md5").update(text).digest();
}
