/** `bucket/leases-renew` and `bucket/leases-release`: leases of running calls. */
import type { LeasesRequest } from "../../../core/store.ts";
import { frameKeys, frameNumbers, packNumbers, type Frame } from "./frame.ts";
import { defineScript, type Script } from "../script.ts";

export type Leases = LeasesRequest & Frame;

export const leasesRenew: Script<Leases, readonly number[]> = defineScript({
  name: "bucket/leases-renew",
  keys: (input) => frameKeys(input),
  args: (input) => [input.asker, leasesNumbers(input)],
  decode: (reply) => reply as number[],
});

export const leasesRelease: Script<Leases, void> = defineScript({
  name: "bucket/leases-release",
  keys: (input) => frameKeys(input),
  args: (input) => [
    input.asker,
    wakeChannel(input.prefix, ""),
    leasesNumbers(input),
    input.bucket,
    ...input.scopes.map(({ key }) => `${input.bucket}\n${key}`),
  ],
  decode: () => undefined,
});

/** The channel on which an asker learns that a lease is free for it; a message is a bucket's name, and after a newline the key whose limit has room. */
export function wakeChannel(prefix: string, asker: string): string {
  return `${prefix}:wake:${asker}`;
}

function leasesNumbers(input: Leases): Buffer {
  const { leases, pinnedUs = 0 } = input;
  return packNumbers([pinnedUs, ...frameNumbers(input), leases.length, ...leases]);
}
