import { expect, it } from "vitest";
import { boundBy, COOLING, NO_PLACE, PAUSED, type Place } from "../../../../../src/core/store.ts";
import type { CallTerms } from "../../../../../src/throttle/costs.ts";
import { keyHeldBy } from "../../../../../src/throttle/waiting/dispatch.ts";
import { leakyBucket } from "../../../../../src/core/policy/limit-makers.ts";

const shared = [leakyBucket("100/s")];
const ofTenant = [leakyBucket("20/s"), leakyBucket("100/min")];
const ofEndpoint = [leakyBucket("2/s")];
const scopes = [
  { key: "acme", limits: ofTenant, place: NO_PLACE },
  { key: "acme e1", limits: ofEndpoint, place: NO_PLACE },
];
const callTerms = { shared } as unknown as CallTerms;
const WAITS: Place = { turnUs: 1, sinceUs: 1, leaseOrder: 0 };

it.each([
  ["the tenant's first limit", 2, [NO_PLACE, NO_PLACE], "acme"],
  ["the tenant's second limit", 3, [NO_PLACE, NO_PLACE], "acme"],
  ["the endpoint's limit", 4, [WAITS, WAITS], "acme e1"],
  ["a pause of the tenant", boundBy(PAUSED, 1), [NO_PLACE, WAITS], "acme"],
  ["a cooldown of the endpoint", boundBy(COOLING, 2), [WAITS, NO_PLACE], "acme e1"],
  ["a pause of the bucket, by where they wait", PAUSED, [WAITS, NO_PLACE], "acme"],
])("%s holds back those whose it is", (_what, bindsAt, places, key) => {
  expect(keyHeldBy({ scopes, callTerms }, { bindsAt, places })).toBe(key);
});
