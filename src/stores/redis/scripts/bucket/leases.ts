import { adaptiveNumbers } from "../../../../core/limits/registry.ts";
import type { ClosedWindow, LeasesRequest } from "../../../../core/store.ts";
import { adaptiveWindow, type Frame } from "./frame.ts";
import { leasedLimits, stateKeys, type LeasedLimit } from "../keys.ts";
import { defineScript, type Script } from "../script.ts";

export type Leases = LeasesRequest & Frame;

export const leasesRenew: Script<Leases, readonly number[]> = defineScript({
  name: "bucket/leases-renew",
  keys: leaseKeys,
  args: (input) => [input.asker, leasesNumbers(input)],
  decode: (reply) => reply as number[],
});

export const leasesRelease: Script<Leases, readonly ClosedWindow[]> = defineScript({
  name: "bucket/leases-release",
  keys: leaseKeys,
  args: (input) => [
    input.asker,
    wakeChannel(input.prefix, ""),
    [...leasesNumbers(input), ...adaptiveOf(input)],
    ...leasedOf(input).map(({ key }) =>
      key === undefined ? input.bucket : `${input.bucket}\n${key}`,
    ),
  ],
  decode: (reply, input) => closedWindows(reply, input),
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

function leasesNumbers(input: Leases): number[] {
  const { leases, pinnedUs = 0 } = input;
  const limits = leasedOf(input).map(({ limit, parts }) => [
    limit.count,
    limit.periodUs,
    parts.length,
  ]);
  return [pinnedUs, limits.length, ...limits.flat(), leases.length, ...leases];
}

/** Returns the latencies of the calls and the options of the limits that adapt. Empty if no limit adapts. */
function adaptiveOf(input: Leases): number[] {
  const options = leasedOf(input).flatMap(({ limit }) => adaptiveNumbers(limit));
  if (options.length === 0) return [];
  const { leases, latenciesUs = leases.map(() => 0) } = input;
  return [...latenciesUs, ...options];
}

/** Reads the windows that a release has closed. Without a limit that adapts, the reply has only names of replicas. */
function closedWindows(reply: unknown, input: Leases): ClosedWindow[] {
  const [, ...windows] = reply as readonly [unknown, ...(readonly number[])[]];
  const leased = leasedOf(input);
  if (!leased.some(({ limit }) => limit.adaptive !== undefined)) return [];
  return windows.map(([number, ...fields]) => {
    const { limit, key } = leased[number! - 1]!;
    return { limit, key, ...adaptiveWindow(fields) };
  });
}
