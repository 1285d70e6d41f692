import { setImmediate as nextTurn } from "node:timers/promises";
import { afterEach, beforeAll, beforeEach, expect, vi } from "vitest";
import { collectGarbage } from "../garbage.ts";

/** Has time stand still in the tests of a file or group; the function runs what is due within so many ms. */
export function fakeTimers({ leavesNone = false } = {}): (ms: number) => Promise<unknown> {
  if (leavesNone) {
    // Files share a process: the calls of generators and answers that another file has dropped end when they are
    // collected as garbage, and would set timers in the middle of a test of this one.
    beforeAll(async () => {
      collectGarbage();
      await nextTurn();
    });
  }
  beforeEach(() => {
    vi.useFakeTimers();
  });
  afterEach(() => {
    if (leavesNone) expect(vi.getTimerCount()).toBe(0);
    vi.useRealTimers();
  });
  return (ms) => vi.advanceTimersByTimeAsync(ms);
}
