import { beforeEach, describe, expect, it, onTestFinished, vi } from "vitest";
import { createReadings } from "../../../src/insight/metrics/readings.ts";

beforeEach(() => {
  vi.useFakeTimers();
  onTestFinished(() => void vi.useRealTimers());
});

/** Readings that take a while, and are numbers. */
function open(takesMs: number) {
  let count = 0;
  const readings = createReadings({
    everyMs: 5_000,
    async read() {
      count += 1;
      await new Promise((resolve) => setTimeout(resolve, takesMs));
      return count;
    },
    onError(error) {
      throw error;
    },
  });
  onTestFinished(() => readings.close());
  return { readings, count: () => count };
}

describe("a value that is read while it is requested", () => {
  it("is no longer read 90 seconds after the last request, and read again for the next one", async () => {
    const { readings, count } = open(0);
    void readings.latest();
    await vi.advanceTimersByTimeAsync(89_000);
    expect(count()).toBe(1 + 17);
    await vi.advanceTimersByTimeAsync(10_000);
    const last = count();
    await vi.advanceTimersByTimeAsync(3_600_000);
    expect(count()).toBe(last);

    const asked = readings.latest();
    await vi.advanceTimersByTimeAsync(1);
    expect(await asked).toBe(last + 1);
  });

  it("takes at most a tenth of the time to read", async () => {
    const { readings, count } = open(2_000);
    void readings.latest();
    await vi.advanceTimersByTimeAsync(21_900);
    expect(count()).toBe(1);
    await vi.advanceTimersByTimeAsync(200);
    expect(count()).toBe(2);
  });
});
