import type { LeasesRequest } from "../../../../core/store.ts";
import { packNumbers, type Frame } from "./frame.ts";
import { leasedLimits, stateKeys, type LeasedLimit } from "../keys.ts";
import { defineScript, type Script } from "../script.ts";

export type Leases = LeasesRequest & Frame;

export const leasesRenew: Script<Leases, readonly number[]> = defineScript({
  name: "bucket/leases-renew",
  keys: leaseKeys,
  args: (input) => [input.asker, leasesNumbers(input)],
  decode: (reply) => reply as number[],
});

export const leasesRelease: Script<Leases, void> = defineScript({
  name: "bucket/leases-release",
  keys: leaseKeys,
  args: (input) => [
    input.asker,
    wakeChannel(input.prefix, ""),
    leasesNumbers(input),
    ...leasedOf(input).map(({ key }) =>
      key === undefined ? input.bucket : `${input.bucket}\n${key}`,
    ),
  ],
  decode: () => undefined,
});

/**
 * Returns the channel that notifies a replica when a lease becomes free for it. A message contains a
 * bucket's name. If a key's limit has room, a newline and the key follow.
 */
export function wakeChannel(prefix: string, replica: string): string {
  return `${prefix}:wake:${replica}`;
}

/**
 * Returns the leased limits from the replica's own policy. That policy determines where the replica's
 * leases are stored, even if another policy is active now.
 */
function leasedOf({ prefix, bucket, terms, scopes }: Leases): LeasedLimit[] {
  return leasedLimits(prefix, bucket, terms.limits, scopes);
}

function leaseKeys(input: Leases): string[] {
  const { prefix, bucket } = input;
  return [...stateKeys(prefix, bucket, []), ...leasedOf(input).flatMap(({ parts }) => parts)];
}

function leasesNumbers(input: Leases): Buffer {
  const { leases, pinnedUs = 0 } = input;
  const limits = leasedOf(input).map(({ limit }) => [limit.count, limit.periodUs]);
  return packNumbers([pinnedUs, limits.length, ...limits.flat(), leases.length, ...leases]);
}
