import { afterEach, describe, expect, it, vi } from "vitest";
import { fixedWindow } from "sluice";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
afterEach(() => {
  vi.restoreAllMocks();
});

const HOUR_MS = 3_600_000;
/** Zones whose midnights lie all around the clock: one of them is never near. */
const align = { at: "00:00", timeZone: "Pacific/Kiritimati" };

describe("a daily limit of a process whose clock is wrong", () => {
  it.each([-30 * HOUR_MS, -5 * HOUR_MS, 5 * HOUR_MS, 400 * 24 * HOUR_MS])(
    "resets by the clock of Redis, with this process's clock %i ms off",
    async (offMs) => {
      const now = Date.now.bind(Date);
      const right = sluices.open().bucket("daily", { limits: [fixedWindow(3, "1d", { align })] });
      const expected = (await right.tryDraw()).resetAfterMs;
      vi.spyOn(Date, "now").mockImplementation(() => now() + offMs);
      const wrong = sluices.open().bucket("daily", { limits: [fixedWindow(3, "1d", { align })] });

      const peeked = await wrong.peek();
      const second = await wrong.tryDraw();
      const third = await wrong.tryDraw();
      const refused = await wrong.tryDraw();

      expect(peeked.limits[0]).toMatchObject({ remaining: 2 });
      expect([second.allowed, third.allowed, refused.allowed]).toEqual([true, true, false]);
      expect(expected - refused.resetAfterMs).toBeGreaterThanOrEqual(0);
      expect(expected - refused.resetAfterMs).toBeLessThan(60_000);
      expect(refused.resetAfterMs).toBeLessThanOrEqual(24 * HOUR_MS);
    },
  );
});
