import { expect, it } from "vitest";
import { adaptiveText } from "../../../src/operations/text.ts";
import type {
  AdaptiveState,
  LimitState,
  MemberState,
} from "../../../src/throttle/bucket/bucket-state.ts";

const STATE: AdaptiveState = {
  atOnce: 42,
  value: 41.6,
  min: 1,
  max: 200,
  shadow: false,
  baselineMs: 48.2,
  recentMs: 50.9,
  gradient: 0.947,
  reason: "raised",
};

function textOf(change: Partial<AdaptiveState>): string[] {
  const adaptive = { name: "1 to 200 at once", adaptive: { ...STATE, ...change } } as LimitState;
  const limits = [{ name: "100/s" } as LimitState, adaptive];
  return adaptiveText({ limits });
}

it.each([
  [
    "says how many calls may run at once, and how long they take",
    {},
    "lets 42 calls run at once now. Calls take 51 ms, and 48 ms without a queue.",
  ],
  [
    "says that the limit calibrates",
    { atOnce: 20, reason: "calibrating", baselineMs: 0, recentMs: 0 } as const,
    "lets 20 calls run at once now. It calibrates: it still measures the latency without a queue.",
  ],
  [
    "says what a limit in shadow would allow",
    { atOnce: 200, shadow: true },
    "is in shadow: 200 calls may run at once, and it would allow 42. Calls take 51 ms, and 48 ms without a queue.",
  ],
])("%s", (_name, change, text) => {
  expect(textOf(change)).toEqual([`The limit 1 to 200 at once ${text}`]);
});

it("names the member of a pool", () => {
  const name = "1 to 200 at once (member east)";
  const limits = [{ name, adaptive: STATE } as LimitState];
  const members = [{ name: "east", limits } as Partial<MemberState> as MemberState];

  const [text] = adaptiveText({ limits: [], members });

  expect(text).toContain("The limit 1 to 200 at once (member east) lets 42 calls run");
});
