import { afterEach, beforeEach, vi } from "vitest";

/** Has time stand still in a file's tests; the function runs what is due within so many ms. */
export function fakeTimers(): (ms: number) => Promise<unknown> {
  beforeEach(() => {
    vi.useFakeTimers();
  });
  afterEach(() => {
    vi.useRealTimers();
  });
  return (ms) => vi.advanceTimersByTimeAsync(ms);
}
