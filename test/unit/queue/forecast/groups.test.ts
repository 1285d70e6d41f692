import { describe, expect, it } from "vitest";
import { encodeKey } from "../../../../src/core/key-path.ts";
import { drain, type LaneLoad } from "../../../../src/queue/forecast/drain.ts";
import { createGroups } from "../../../../src/queue/forecast/pace.ts";

const path = (...names: string[]): string => encodeKey(names);

/** Lanes of 40 calls each, of keys whose limits are these, in calls a ms. */
function lanesOf(
  keys: readonly string[],
  {
    limits = {},
    heads = [],
    paused = {},
  }: {
    readonly limits?: Readonly<Record<string, number>>;
    readonly heads?: readonly {
      readonly key: string;
      readonly weight: number;
      readonly asideMs: number;
    }[];
    readonly paused?: Readonly<Record<string, number>>;
  },
): LaneLoad[] {
  const perMsOf = (text: string): number => limits[text] ?? Infinity;
  const groups = createGroups(heads, { perMsOf }, (text) => paused[text] ?? 0);
  return keys.map((key) => ({ calls: 40, ...groups.laneSettings(key) }));
}

/** How much of each lane is served in 10 ms, at one call a ms. */
function served(lanes: readonly LaneLoad[]): number[] {
  const { servedBy } = drain(lanes, [{ fromMs: 0, perMs: 1 }], { ms: 10 });
  return lanes.map((_lane, index) => Number(servedBy(index, 10).toFixed(6)));
}

const KEYS = [path("acme", "a"), path("acme", "b"), path("acme", "c"), "other"];
const aHead = (key: string, weight = 1, asideMs = 0) => ({ key, weight, asideMs });

describe("the lanes below a head", () => {
  it("share its turns, however many there are", () => {
    expect(served(lanesOf(KEYS, {}))).toEqual(
      [5 / 3, 5 / 3, 5 / 3, 5].map((n) => Number(n.toFixed(6))),
    );
  });

  it("share them by the head's weight", () => {
    expect(served(lanesOf(KEYS, { heads: [aHead("acme", 3)] }))).toEqual([2.5, 2.5, 2.5, 2.5]);
  });

  it("share its limits, and each has separate ones", () => {
    const limits = { acme: 0.3, [KEYS[0]!]: 0.05 };

    expect(served(lanesOf(KEYS, { limits }))).toEqual([0.5, 1.25, 1.25, 7]);
  });

  it("wait while it is skipped or paused, or only one of them is", () => {
    const heads = [aHead("acme", 1, 5)];
    const paused = { [KEYS[0]!]: Infinity };

    expect(served(lanesOf(KEYS, { heads, paused }))).toEqual([0, 1.25, 1.25, 7.5]);
  });

  it("share them with the lane of the head's own jobs, which the head's limits apply to", () => {
    const keys = ["acme", path("acme", "a")];

    expect(served(lanesOf(keys, { heads: [aHead("acme", 3)], limits: { acme: 0.4 } }))).toEqual([
      2, 2,
    ]);
  });

  it("share the turns of that head at the third level", () => {
    const keys = [path("acme", "eu", "a"), path("acme", "eu", "b"), path("acme", "us", "c")];

    expect(served(lanesOf(keys, {}))).toEqual([2.5, 2.5, 5]);
  });
});
