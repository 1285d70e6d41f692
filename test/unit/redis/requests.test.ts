import type { Redis } from "ioredis";
import { describe, expect, it, vi } from "vitest";
import { createRequests } from "../../../src/stores/redis/requests/requests.ts";
import type { Breakers } from "../../../src/stores/redis/requests/breaker.ts";
import { rejectionOf } from "../../support/async/rejection.ts";

/** Requests to a Redis that is there, and a breaker that counts. */
function openRequests() {
  const breaker = {
    server: "localhost:6379",
    isOpen: false,
    refusal: undefined,
    succeed: vi.fn<() => void>(),
    fail: vi.fn<() => void>(),
    ready: () => {},
    close: () => {},
  };
  const breakers: Breakers = { of: () => breaker, close: () => {} };
  const redis = { status: "ready", on() {} } as unknown as Redis;
  return { breaker, requests: createRequests(redis, breakers, 2_000) };
}

function replyError(message: string): Error {
  return Object.assign(new Error(message), { name: "ReplyError" });
}

describe("a request that is sent once", () => {
  it.each([
    ["a connection that was lost is a failure of the server", new Error("closed"), [0, 1]],
    ["a refusal of Redis is no outage", replyError("OOM not allowed"), [0, 0]],
    ["a refusal of a script is an answer", replyError("SLUICE_COST_TOO_LARGE 5 3"), [1, 0]],
  ])("%s", async (_title, error, told) => {
    const { breaker, requests } = openRequests();

    const thrown = await rejectionOf(requests.sendOnce("b", () => Promise.reject(error)));

    expect(thrown).toBe(error);
    expect([breaker.succeed.mock.calls.length, breaker.fail.mock.calls.length]).toEqual(told);
  });
});
