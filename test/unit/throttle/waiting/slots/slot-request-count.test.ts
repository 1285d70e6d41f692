import { describe, expect, it } from "vitest";
import { createSlotRequestCount } from "../../../../../src/throttle/waiting/draw-request.ts";

type Reply = readonly [granted: number, wanted: number, lateMs: number];

/** The most slot requests of a request after each of these replies. */
function mostAfter(...replies: readonly Reply[]): number[] {
  const count = createSlotRequestCount();
  return replies.map((reply) => {
    count.granted(...reply);
    return count.most;
  });
}

describe("createSlotRequestCount", () => {
  it("doubles the number after full requests that are granted in time, up to 128", () => {
    const replies = [12, 24, 48, 96, 128].map((wanted): Reply => [wanted, wanted, 0]);

    expect(mostAfter(...replies)).toEqual([24, 48, 96, 128, 128]);
  });

  it("halves the number after a late reply, down to 12, and keeps it in between", () => {
    expect(mostAfter([12, 12, 0], [24, 24, 0], [48, 48, 4.1], [24, 24, 3], [24, 24, 9])).toEqual([
      24, 48, 24, 24, 12,
    ]);
    expect(mostAfter([12, 12, 50])).toEqual([12]);
  });

  it("does not double the number after a request that was not full", () => {
    expect(mostAfter([3, 3, 0])).toEqual([12]);
  });

  it("asks for a few more than a turn brings, however late the reply is", () => {
    expect(mostAfter([20, 40, 50])).toEqual([22]);
  });
});
