import { describe, expect, it } from "vitest";
import { NO_POSITION } from "../../../../../src/core/store.ts";
import { callTermsOf } from "../../../../../src/throttle/costs.ts";
import type { SlotContext } from "../../../../../src/throttle/slot/slot.ts";
import { createGroupSchedule } from "../../../../../src/throttle/waiting/group-schedule.ts";
import { Group, type Caller } from "../../../../../src/throttle/waiting/group.ts";
import { fakeTimers } from "../../../../support/async/fake-timers.ts";

const advance = fakeTimers({ leavesNone: true });
const callTerms = callTermsOf({ shared: [], scopeLimits: [], costs: [], whose: [], text: "" });

/** A schedule of keys, one caller in each, who came in this order. */
function setUp(...keys: readonly string[]) {
  const schedule = createGroupSchedule();
  let callers = 0;
  const join = (key: string, into?: Group): Group => {
    const scopes = [{ key, limits: [], position: NO_POSITION }];
    const parts = { keeper: {} as SlotContext, name: key, scopes };
    const group = into ?? new Group(callTerms, parts);
    const caller = { priority: "normal", number: (callers += 1), group } as Caller;
    group.line.push(caller);
    schedule.joined(caller);
    return group;
  };
  const groups = keys.map((key) => join(key));
  const next = (count = 10): string[] =>
    schedule.next(count, performance.now()).map(({ name }) => name);
  const answer = (group: Group, inMs: number, bindsAt = 0): void => {
    const arrivedMs = performance.now();
    schedule.answered(group, { untilMs: arrivedMs + inMs, arrivedMs, bindsAt });
  };
  return { schedule, groups, join, next, answer };
}

describe("groups are asked for", () => {
  it("in the order in which their first callers came", () => {
    expect(setUp("a", "b", "c").next()).toEqual(["a", "b", "c"]);
    expect(setUp("a", "b", "c").next(2)).toEqual(["a", "b"]);
  });

  it("that are deferred: when their time has come, after all callers that had come by the answer", async () => {
    const { groups, join, next, answer } = setUp("a", "b");
    answer(groups[0]!, 50);
    const before = next();
    join("c");

    await advance(50);

    expect(before).toEqual(["b"]);
    expect(next()).toEqual(["b", "a", "c"]);
  });

  it("although none's time has come: the one whose time is nearest, and the others by turns", () => {
    const { groups, next, answer } = setUp("a", "b", "c");
    for (const [index, group] of groups.entries()) answer(group, 100 - index);

    expect([next(2), next(2), next(1)]).toEqual([["c", "a"], ["c", "b"], ["c"]]);
  });

  it("at any time after a change of their key, as if it had not deferred them", () => {
    const { schedule, groups, next, answer } = setUp("a", "b");
    answer(groups[0]!, 50);

    schedule.wake("a");

    expect(next()).toEqual(["a", "b"]);
  });

  it("at any time after a change of all keys, those last that were deferred", () => {
    const { schedule, groups, next, answer } = setUp("a", "b");
    answer(groups[0]!, 50);

    schedule.wakeAll();

    expect(next()).toEqual(["b", "a"]);
  });

  it("never, once no caller of theirs lacks a slot", () => {
    const { schedule, groups, next } = setUp("a", "b");
    const [a] = groups;

    a!.line.shift();
    schedule.update(a!);

    expect(next()).toEqual(["b"]);
    expect([schedule.hasKey("a"), schedule.hasKey("b")]).toEqual([false, true]);
  });
});

describe("an answer", () => {
  it("says what holds calls back", () => {
    const { groups, answer } = setUp("a");

    answer(groups[0]!, 50, 2);

    expect(groups[0]!.bindsAt).toBe(2);
  });

  it("defers nothing if its key has changed since it was asked for", () => {
    const { schedule, groups, next, answer } = setUp("a", "b");
    next();
    schedule.wake("a");

    answer(groups[0]!, 50);
    const afterNews = next();
    answer(groups[0]!, 50);

    expect(afterNews).toEqual(["a", "b"]);
    expect(next()).toEqual(["b"]);
  });
});

it("counts the callers that have yet to wait for their key's time, but for those that have slots", async () => {
  const { schedule, groups, join, answer } = setUp("a", "b");
  join("a", groups[0]);
  answer(groups[0]!, 50);
  answer(groups[1]!, 80);

  const counts = [schedule.deferredCallers];
  await advance(60);
  counts.push(schedule.deferredCallers);
  schedule.deferNone();
  counts.push(schedule.deferredCallers);

  expect(counts).toEqual([3, 1, 0]);
  expect(schedule.deferredGroups).toBe(0);
});
