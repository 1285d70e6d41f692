/**
 * Decides which addresses webhooks may use: public addresses, and private addresses that the
 * operator allows.
 */
import { isIP } from "node:net";
import ipaddr from "ipaddr.js";
import * as z from "zod";

/**
 * Decides whether webhooks may use an address from the resolver or from a URL. Returns true if they
 * may.
 */
export type JudgeAddress = (address: string) => boolean;

type Address = ipaddr.IPv4 | ipaddr.IPv6;
type Range = readonly [address: Address, bits: number];

/**
 * IPv4 ranges without public hosts: the IANA special-purpose registry, multicast, and the reserved
 * ranges at the end.
 */
const CLOSED_V4 = [
  "0.0.0.0/8",
  "10.0.0.0/8",
  "100.64.0.0/10",
  "127.0.0.0/8",
  "169.254.0.0/16",
  "172.16.0.0/12",
  "192.0.0.0/24",
  "192.0.2.0/24",
  "192.31.196.0/24",
  "192.52.193.0/24",
  "192.88.99.0/24",
  "192.168.0.0/16",
  "192.175.48.0/24",
  "198.18.0.0/15",
  "198.51.100.0/24",
  "203.0.113.0/24",
  "224.0.0.0/4",
  "240.0.0.0/4",
  // This address looks public, but is internal to Azure's hosts.
  "168.63.129.16/32",
].map(rangeOf);

/** The only IPv6 range in use for public hosts. */
const OPEN_V6 = rangeOf("2000::/3");
/**
 * Parts of the IPv6 range above that contain no public hosts: protocol assignments with Teredo and
 * ORCHID, documentation, 6to4, and segment routing.
 */
const CLOSED_V6 = ["2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20"].map(
  rangeOf,
);
/**
 * Ranges of IPv6 addresses that contain an IPv4 address: mapped addresses, and those that NAT64
 * networks return for IPv4-only hosts.
 */
const MAPPED = rangeOf("::ffff:0:0/96");
const NAT64 = rangeOf("64:ff9b::/96");
/** Interface ids of ISATAP, which puts an IPv4 address into the last 32 bits after any prefix. */
const ISATAP = [0x0000_5efe, 0x0200_5efe];

const ALLOWED_REMEDY = 'give ranges such as "10.0.0.0/8" or "fd00::/8", or single addresses';

/** @internal */
export const ALLOW: z.ZodType<readonly string[]> = z.array(
  z
    .string({ error: ALLOWED_REMEDY })
    .refine((text) => tryRange(text) !== undefined, { error: ALLOWED_REMEDY }),
  { error: ALLOWED_REMEDY },
);

export function createJudge(allow: readonly string[] = []): JudgeAddress {
  const allowed = allow.map(rangeOf);
  return (text) => {
    // Accepts only addresses that a socket accepts. Rejects octal numbers and zones.
    if (isIP(text) === 0 || text.includes("%")) return false;
    const address = parse(text);
    const inner = innerOf(address);
    if (isWithin(address, allowed) || (inner !== undefined && isWithin(inner, allowed)))
      return true;
    return isPublic(inner ?? address);
  };
}

/**
 * Parses an address in its canonical form, because the library takes some other spellings for
 * mapped addresses.
 */
function parse(text: string): Address {
  if (isIP(text) === 4) return ipaddr.IPv4.parse(text);
  return ipaddr.IPv6.parse(new URL(`http://[${text}]`).hostname.slice(1, -1));
}

function isPublic(address: Address): boolean {
  if (address instanceof ipaddr.IPv4) return !isWithin(address, CLOSED_V4);
  if (!isWithin(address, [OPEN_V6]) || isWithin(address, CLOSED_V6)) return false;
  const parts = (address as ipaddr.IPv6).parts;
  if (!ISATAP.includes(parts[4]! * 0x1_0000 + parts[5]!)) return true;
  return isPublic(lastV4(address as ipaddr.IPv6));
}

/** Returns the IPv4 address that an IPv6 address contains. */
function innerOf(address: Address): Address | undefined {
  if (!isWithin(address, [MAPPED, NAT64])) return undefined;
  return lastV4(address as ipaddr.IPv6);
}

function lastV4(address: ipaddr.IPv6): ipaddr.IPv4 {
  return new ipaddr.IPv4(address.toByteArray().slice(12));
}

function isWithin(address: Address, ranges: readonly Range[]): boolean {
  return ranges.some(
    ([base, bits]) =>
      base instanceof ipaddr.IPv4 === address instanceof ipaddr.IPv4 &&
      address.match(base as never, bits),
  );
}

function rangeOf(text: string): Range {
  return tryRange(text)!;
}

/**
 * Accepts a range only if its address is the first in the range. Otherwise the range covers more
 * than it seems to, as in `10.1.2.3/8`.
 */
function tryRange(text: string): Range | undefined {
  const [ip = "", bits, ...more] = text.split("/");
  if (isIP(ip) === 0 || ip.includes("%") || more.length > 0) return undefined;
  const address = parse(ip);
  const most = address instanceof ipaddr.IPv4 ? 32 : 128;
  if (bits === undefined) return [address, most];
  if (!/^\d{1,3}$/.test(bits) || Number(bits) > most) return undefined;
  const family = most === 32 ? ipaddr.IPv4 : ipaddr.IPv6;
  const first = family.networkAddressFromCIDR(`${address.toString()}/${bits}`);
  return first.toNormalizedString() === address.toNormalizedString()
    ? [address, Number(bits)]
    : undefined;
}
