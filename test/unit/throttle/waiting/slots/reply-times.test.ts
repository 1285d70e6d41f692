import { expect, it } from "vitest";
import type { Drawn } from "../../../../../src/core/store.ts";
import { createReplyTimes } from "../../../../../src/throttle/waiting/ask-times.ts";
import { fakeTimers } from "../../../../support/async/fake-timers.ts";

const advance = fakeTimers({ leavesNone: true });

/** How much ahead a question leaves after replies that took so long each, and came so many ms apart. */
async function leadAfter(tookMs: readonly number[], apartMs = 700): Promise<number> {
  const times = createReplyTimes();
  for (const took of tookMs) {
    await advance(apartMs);
    times.read({ nowUs: performance.now() * 1_000, sentAtMs: performance.now() - took } as Drawn);
  }
  return times.leadMs;
}

it("a request is sent ahead by the fastest recent reply time, minus a margin", async () => {
  expect(await leadAfter([])).toBe(0);
  expect(await leadAfter([0.3])).toBe(0);
  expect(await leadAfter([30, 20, 40])).toBeCloseTo(19.5);
  expect(await leadAfter([20, 40, 40, 40, 40])).toBeCloseTo(39.5);
});

it("a reply that was delayed in the process does not change how early requests are sent", async () => {
  expect(await leadAfter([5, 250], 3_000)).toBeCloseTo(4.5);
});
