import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { createOwnLimits } from "../../../src/webhooks/delivery/limits.ts";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

it("tells what waits of other rules within half a second, and of the first ones not", async () => {
  let text = '{"perEndpoint":{"rate":"1/h"}}';
  const limits = createOwnLimits(
    {
      limitsSince: async () => ({ version: 1, limits: new Map(), woken: new Map() }) as never,
      readRules: async () => ({ text, version: 1 }),
    },
    { perTenant: {}, perEndpoint: {}, ceiling: {}, isSingle: false } as never,
  );
  const onRules = vi.fn<() => void>();
  const nothing = async (): Promise<void> => {};
  const logger = { warn: vi.fn<() => void>(), error: vi.fn<() => void>() };
  await limits.follow(logger, { onChange: nothing, onWake: nothing, onRules });
  await vi.advanceTimersByTimeAsync(2_000);
  expect(onRules).not.toHaveBeenCalled();

  text = '{"perEndpoint":{"rate":"9/s"}}';
  await vi.advanceTimersByTimeAsync(500);

  expect(onRules).toHaveBeenCalledOnce();
  expect(limits.perKey.at(-1)!(["acme", "a"])).toEqual({ rate: "9/s" });
  limits.stop();
  expect(vi.getTimerCount()).toBe(0);
});
