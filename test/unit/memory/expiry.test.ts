import { describe, expect, it } from "vitest";
import { createMemoryRedis } from "../../../src/stores/memory/redis/memory-redis.ts";

function open() {
  let us = 0;
  const { commands, sweep } = createMemoryRedis({
    nowUs: () => us,
    expiryUs: () => us,
    publish: () => 0,
  });
  return {
    commands,
    sweep,
    moveTo: (nowUs: number): void => {
      us = nowUs;
    },
  };
}

describe("the Redis in memory", () => {
  it("keeps a key of 5 ms until the sixth millisecond begins, as Redis does", () => {
    const { commands, moveTo } = open();
    commands["SET"]!("k", "v", "PX", 5);
    moveTo(5_999);
    const before = commands["GET"]!("k");

    moveTo(6_000);

    expect([before, commands["GET"]!("k")]).toEqual(["v", false]);
  });

  it("sweeps no key that has not expired", () => {
    const { commands, sweep, moveTo } = open();
    commands["SET"]!("k", "v", "PX", 60_000);
    moveTo(60_000_999);

    sweep();

    expect(commands["GET"]!("k")).toBe("v");
  });
});
