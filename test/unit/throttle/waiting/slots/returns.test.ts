import { expect, it, vi } from "vitest";
import { fixedWindow, leakyBucket } from "../../../../../src/core/policy/limit-makers.ts";
import { compilePolicy } from "../../../../../src/core/policy/policy.ts";
import { createMemoryStore } from "../../../../../src/stores/memory/memory-store.ts";
import { callTermsOf } from "../../../../../src/throttle/costs.ts";
import { Group } from "../../../../../src/throttle/waiting/group.ts";
import { createKnownPolicy } from "../../../../../src/throttle/known-policy.ts";
import { refundUnused } from "../../../../../src/throttle/waiting/pacer.ts";
import type { SlotContext } from "../../../../../src/throttle/slot/slot.ts";

const limits = [leakyBucket("100/s"), fixedWindow(50, "1h")];
const policy = compilePolicy("test", { limits });
const logger = { warn() {}, error() {} };
const count = (): void => {};

/** What is settled when two slots of a policy of this text came too late. */
async function settledFor(text: string): Promise<readonly unknown[]> {
  const store = createMemoryStore();
  const settle = vi.spyOn(store, "settle");
  const known = createKnownPolicy("test", { policy }, logger);
  const context = { store, bucket: "test", asker: "a", known, logger, count };
  const conditions = callTermsOf({
    shared: limits,
    scopeLimits: [],
    costs: [3, 3],
    whose: [],
    text,
  });
  const group = new Group(conditions, {
    keeper: {} as SlotContext,
    name: "",
    scopes: [],
  });
  const slots = [1, 2].map(() => ({ slotUs: 7_000_000, atMs: 0, lease: 0, rank: 2, member: 0 }));

  await refundUnused(context, group, slots);

  return settle.mock.calls.map(([request]) => request);
}

it("gives back what slots that came too late took of a window, and of nothing shared that drains", async () => {
  expect(await settledFor(policy.text)).toMatchObject([{ deltas: [0, -6], slotUs: 7_000_000 }]);
});

it("gives nothing back once another policy is in force, under which the numbers mean something else", async () => {
  expect(await settledFor("another policy")).toEqual([]);
});
