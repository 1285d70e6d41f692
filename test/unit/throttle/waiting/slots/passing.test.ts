import { expect, it } from "vitest";
import { PRIORITIES, type Priority } from "../../../../../src/core/input/options.ts";
import type { Granted } from "../../../../../src/core/store.ts";
import type { LeaseKeeper } from "../../../../../src/throttle/slot/leases.ts";
import type { SlotContext } from "../../../../../src/throttle/slot/slot.ts";
import { callTermsOf } from "../../../../../src/throttle/costs.ts";
import { createDispatcher } from "../../../../../src/throttle/waiting/dispatch.ts";
import { Group, type Caller } from "../../../../../src/throttle/waiting/group.ts";
import { fakeTimers } from "../../../../support/async/fake-timers.ts";

const advance = fakeTimers({ leavesNone: true });
const callTerms = callTermsOf({ shared: [], scopeLimits: [], costs: [], whose: [], text: "" });

/** Callers of one group, who go on slots that were drawn for calls of some priority. */
function setUp() {
  const dispatcher = createDispatcher({} as LeaseKeeper);
  const parts = { keeper: {} as SlotContext, name: "", scopes: [] };
  const group = new Group(callTerms, parts);
  const gone: string[] = [];
  let callers = 0;
  return {
    gone,
    enter(priority: Priority): void {
      const go = (): void => void gone.push(priority);
      const times = { queuedMs: performance.now(), patienceMs: Infinity, untilMs: Infinity };
      dispatcher.enter({
        priority,
        number: (callers += 1),
        group,
        resolveWith: go,
        ...times,
      } as unknown as Caller);
    },
    /** Holds a slot that comes in so many ms. */
    hold(priority: Priority, inMs: number): void {
      const sentAtMs = performance.now();
      const drawn = { firstLease: 0, sentAtMs, rank: PRIORITIES.indexOf(priority) };
      const granted = { slotsUs: [inMs * 1_000], run: undefined } as unknown as Granted;
      dispatcher.hold(group, granted, { ...drawn, offsetMs: sentAtMs });
    },
    dispatch: () => dispatcher.dispatchDue(0, () => {}),
  };
}

it("a more urgent call takes the slot of a call, which gets a later one", async () => {
  const { gone, ...line } = setUp();
  line.enter("low");
  line.hold("low", 0);
  line.enter("critical");
  line.hold("critical", 10);

  line.dispatch();
  const first = [...gone];
  await advance(10);
  line.dispatch();

  expect([first, gone]).toEqual([["critical"], ["critical", "low"]]);
});

it("a call without a slot passes no other call, because its slot may be far away", () => {
  const { gone, ...line } = setUp();
  line.enter("low");
  line.hold("low", 0);
  line.enter("critical");

  line.dispatch();

  expect(gone).toEqual(["low"]);
});

it("a call is passed only once, however many urgent calls arrive", async () => {
  const { gone, ...line } = setUp();
  line.enter("low");
  line.hold("low", 0);
  line.enter("high");
  line.hold("high", 10);
  line.dispatch();
  line.enter("critical");
  line.hold("critical", 20);

  await advance(10);
  line.dispatch();

  expect(gone).toEqual(["high", "low"]);
});
