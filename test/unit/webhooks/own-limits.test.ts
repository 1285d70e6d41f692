import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { encodeKey } from "../../../src/core/key-path.ts";
import { createOwnLimits } from "../../../src/webhooks/delivery/limits.ts";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

it("notifies pending deliveries of changed rules within half a second, and not of the first rules", async () => {
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

it("a tenant's limit does not wait for thousands of others that have changed, or are woken", async () => {
  const key = (name: string): string => encodeKey([name, "e"]);
  let since = {
    version: 1,
    limits: new Map<string, string>(),
    woken: [] as string[],
    forgotten: [],
  };
  const limits = createOwnLimits(
    { limitsSince: async () => since, readRules: async () => undefined },
    { perTenant: {}, perEndpoint: {}, ceiling: {} },
  );
  const changed: (readonly string[])[] = [];
  const woken: unknown[] = [];
  const logger = { warn: vi.fn<() => void>(), error: vi.fn<() => void>() };
  await limits.follow(logger, {
    onChange: (keys) => void changed.push(keys),
    // Redis answers none of these.
    onWake: (each) => {
      woken.push(each);
      return new Promise(() => {});
    },
    onRules: () => {},
  });
  const many = Array.from({ length: 3_000 }, (_, at) => key(`mallory-${at}`));
  since = {
    version: 2,
    limits: new Map(many.map((each) => [each, '{"rate":"7/s"}'])),
    woken: many,
    forgotten: [],
  };
  await vi.advanceTimersByTimeAsync(500);

  since = {
    version: 3,
    limits: new Map([[key("acme"), '{"rate":"9/s"}']]),
    woken: [],
    forgotten: [],
  };
  await vi.advanceTimersByTimeAsync(500);

  expect(changed).toEqual([many, [key("acme")]]);
  expect(woken).toHaveLength(1);
  expect(limits.perKey.at(-1)!(["acme", "e"])).toEqual({ rate: "9/s" });
  limits.stop();
});

it("keeps trying to wake an endpoint, and still reads the limits", async () => {
  let looks = 0;
  const limits = createOwnLimits(
    {
      limitsSince: async () => ({
        version: 1,
        limits: new Map(),
        woken: looks++ === 1 ? ["a"] : [],
        forgotten: [],
      }),
      readRules: async () => undefined,
    },
    { perTenant: {}, perEndpoint: {}, ceiling: {} },
  );
  const logger = { warn: vi.fn<() => void>(), error: vi.fn<() => void>() };
  const onWake = vi.fn<() => Promise<void>>().mockRejectedValueOnce(new Error("no Redis"));
  await limits.follow(logger, { onChange: () => {}, onWake, onRules: () => {} });

  await vi.advanceTimersByTimeAsync(2_000);

  expect(onWake).toHaveBeenCalledTimes(2);
  expect(logger.warn).toHaveBeenCalledOnce();
  expect(looks).toBeGreaterThan(3);
  limits.stop();
});
