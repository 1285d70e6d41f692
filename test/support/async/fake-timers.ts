import { afterEach, beforeEach, expect, vi } from "vitest";

/** Has time stand still in the tests of a file or group; the function runs what is due within so many ms. */
export function fakeTimers({ leavesNone = false } = {}): (ms: number) => Promise<unknown> {
  beforeEach(() => {
    vi.useFakeTimers();
  });
  afterEach(() => {
    if (leavesNone) expect(vi.getTimerCount()).toBe(0);
    vi.useRealTimers();
  });
  return (ms) => vi.advanceTimersByTimeAsync(ms);
}
