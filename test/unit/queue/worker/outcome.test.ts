import { describe, expect, it } from "vitest";
import { InvalidOptionError } from "../../../../src/core/errors.ts";
import type { Job } from "../../../../src/queue/job.ts";
import {
  asFailure,
  Discard,
  expiredFailure,
  isDiscard,
  isRetryAfter,
  isStorable,
  RetryAfter,
} from "../../../../src/queue/worker/outcome.ts";

describe("RetryAfter", () => {
  it.each([-1, Number.NaN, Infinity, 2 ** 31, "5" as never])("refuses %s ms", (ms) => {
    expect(() => new RetryAfter(ms)).toThrow(InvalidOptionError);
  });

  it("is recognized by its name and time, from any copy of the package", () => {
    const foreign = Object.assign(new Error("again"), { name: "RetryAfter", ms: 5 });

    expect(isRetryAfter(foreign)).toBe(true);
    expect(isRetryAfter(Object.assign(foreign, { ms: -5 }))).toBe(false);
    expect(isRetryAfter({ name: "RetryAfter", ms: 5 })).toBe(false);
  });
});

describe("Discard", () => {
  it("is a failure that BullMQ does not retry, with its reason", () => {
    const failure = asFailure(new Discard("no such account"));

    expect(failure).toHaveProperty("name", "UnrecoverableError");
    expect(failure.message).toBe("no such account");
    expect(isDiscard(new Error("no such account"))).toBe(false);
  });
});

describe("a failure", () => {
  it("is the error itself, if BullMQ does not read it as a command", () => {
    const error = new TypeError("no");

    expect(asFailure(error)).toBe(error);
  });

  it("has a limited stack, and keeps its name", () => {
    const error = Object.assign(new TypeError("no"), { stack: "x".repeat(20_000) });

    const failure = asFailure(error);

    expect(failure).toMatchObject({ name: "TypeError", message: "no", cause: error });
    expect(failure.stack).toHaveLength(10_001);
  });

  it("has the message of its cause, since only its message is stored", () => {
    const lost = Object.assign(new Error("connect ECONNREFUSED 127.0.0.1:1"), { code: "E" });
    const error = new TypeError("fetch failed", { cause: lost });

    const failure = asFailure(error);

    expect(failure).toMatchObject({ name: "TypeError", stack: error.stack, cause: error });
    expect(failure.message).toBe("fetch failed (connect ECONNREFUSED 127.0.0.1:1)");
  });

  it.each([
    [new TypeError(""), "TypeError without a message"],
    [
      Object.assign(new AggregateError([], ""), { code: "ECONNREFUSED" }),
      "AggregateError without a message, ECONNREFUSED",
    ],
    [
      new Error(" ", { cause: new Error("no such host") }),
      "Error without a message (no such host)",
    ],
    ["", 'The handler threw ""'],
    [new Discard(" "), "Discarded without a reason"],
  ])("has a message although the error has none: %o", (thrown, reason) => {
    expect(asFailure(thrown).message).toBe(reason);
  });

  it("stays final by its name, although its message is empty", () => {
    const given = Object.assign(new Error(""), { name: "UnrecoverableError" });

    expect(asFailure(given)).toHaveProperty("name", "UnrecoverableError");
  });

  it("is final by BullMQ's name for it, however long its message is", () => {
    const given = Object.assign(new Error("x".repeat(20_000)), { name: "UnrecoverableError" });

    const failure = asFailure(given);

    expect(failure).toHaveProperty("name", "UnrecoverableError");
    expect(failure.message).toHaveLength(10_001);
  });

  it.each(["DelayedError", "RateLimitError", "WaitingError", "WaitingChildrenError"])(
    "is wrapped, if it has the name of a BullMQ command: %s",
    (name) => {
      const failure = asFailure(Object.assign(new Error("no"), { name }));

      expect(failure).toMatchObject({ name: "Error", message: `The handler threw ${name}: no` });
    },
  );

  it("of an expired job shows its deadline, and how late it was", () => {
    const startByMs = Date.UTC(2030, 0, 1);

    const failure = expiredFailure({ startByMs } as Job<unknown>, startByMs + 350);

    expect(failure).toHaveProperty("name", "UnrecoverableError");
    expect(failure.message).toBe(
      "Expired: it had to start by 2030-01-01T00:00:00.000Z, and was 350 ms too late",
    );
  });
});

describe("a result", () => {
  it.each([undefined, null, 0, "text", { a: 1 }, () => 1, Symbol("s")])(
    "can be stored, or is left out: %s",
    (result) => {
      expect(isStorable(result)).toBe(true);
    },
  );

  it("is rejected when JSON fails on it, or it is too long", () => {
    const cycle: { self?: unknown } = {};
    cycle.self = cycle;

    expect([cycle, 1n, "x".repeat(1_000_000)].map(isStorable)).toEqual([false, false, false]);
  });
});
