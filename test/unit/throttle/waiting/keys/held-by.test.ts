import { expect, it } from "vitest";
import {
  boundBy,
  COOLING,
  NO_POSITION,
  PAUSED,
  type WaitPosition,
} from "../../../../../src/core/store.ts";
import type { CallTerms } from "../../../../../src/throttle/costs.ts";
import { keyHeldBy } from "../../../../../src/throttle/waiting/dispatch.ts";
import { leakyBucket } from "../../../../../src/core/policy/limit-makers.ts";

const shared = [leakyBucket("100/s")];
const ofTenant = [leakyBucket("20/s"), leakyBucket("100/min")];
const ofEndpoint = [leakyBucket("2/s")];
const scopes = [
  { key: "acme", limits: ofTenant, position: NO_POSITION },
  { key: "acme e1", limits: ofEndpoint, position: NO_POSITION },
];
const callTerms = { shared } as unknown as CallTerms;
const WAITS: WaitPosition = { turnUs: 1, sinceUs: 1, leaseOrder: 0 };

it.each([
  ["the tenant's first limit", 2, [NO_POSITION, NO_POSITION], "acme"],
  ["the tenant's second limit", 3, [NO_POSITION, NO_POSITION], "acme"],
  ["the endpoint's limit", 4, [WAITS, WAITS], "acme e1"],
  ["a pause of the tenant", boundBy(PAUSED, 1), [NO_POSITION, WAITS], "acme"],
  ["a cooldown of the endpoint", boundBy(COOLING, 2), [WAITS, NO_POSITION], "acme e1"],
  ["a pause of the bucket, by where they wait", PAUSED, [WAITS, NO_POSITION], "acme"],
])("%s holds back those whose it is", (_what, bindsAt, positions, key) => {
  expect(keyHeldBy({ scopes, callTerms }, { bindsAt, positions })).toBe(key);
});
