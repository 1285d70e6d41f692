import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { createManualClock, startFakeDownstream, worstWindow } from "sluice/testing";
import { hostileNumber, hostileText } from "./support/hostile.ts";
import { forAll } from "./support/outcomes.ts";

describe("a helper of sluice/testing", () => {
  it("finds the worst window as counting does", async () => {
    const times = fc.array(fc.oneof(fc.nat(50), fc.double({ noNaN: true })), { maxLength: 30 });
    await forAll(
      500,
      fc.tuple(times, fc.integer({ min: 1, max: 60 })),
      async ([atMs, windowMs]) => {
        const counted = atMs.map(
          (from) => atMs.filter((at) => at === from || (at > from && at - from < windowMs)).length,
        );
        expect(worstWindow(atMs, windowMs)).toBe(Math.max(0, ...counted));
      },
    );
  });

  it("takes any numbers and ends", async () => {
    await forAll(
      300,
      fc.tuple(fc.array(hostileNumber), hostileNumber),
      async ([atMs, windowMs]) => {
        const worst = worstWindow(atMs, windowMs);
        expect(worst >= 0 && worst <= atMs.length).toBe(true);
        const clock = createManualClock();
        clock.set(5);
        clock.advanceMs(windowMs);
        expect(clock.nowUs()).toBe(5 + Math.round(windowMs * 1_000));
      },
    );
  });

  it("answers whatever is sent to it", async () => {
    const downstream = await startFakeDownstream({ maxPerSecond: 50 });
    // What HTTP can carry: no half of a character.
    const text = hostileText.filter((each) => !/\p{Cs}/u.test(each));
    const path = text.map((each) => encodeURIComponent(each));
    await forAll(100, fc.tuple(path, text), async ([where, body]) => {
      const url = `${downstream.url}/${where}`;
      const response = await fetch(url, { method: "POST", body });
      expect([200, 429]).toContain(response.status);
      expect(downstream.arrivals.at(-1)?.body).toBe(body);
    });
    await downstream.close();
  });
});
