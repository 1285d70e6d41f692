import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { seldom } from "../../../src/throttle/seldom.ts";

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

function setUp() {
  const said: unknown[] = [];
  const logger = seldom({
    warn: (facts, message) => void said.push([facts, message]),
    error: (facts, message) => void said.push(["error", facts, message]),
  });
  return { logger, said };
}

describe("a logger for what may go wrong with every call", () => {
  it("says the same once in ten seconds, and then how often it did not", () => {
    const { logger, said } = setUp();
    for (let call = 0; call < 1_000; call++) logger.warn({ reason: "away" }, "Not settled.");
    vi.advanceTimersByTime(9_999);
    logger.warn({ reason: "away" }, "Not settled.");
    expect(said).toEqual([[{ reason: "away" }, "Not settled."]]);

    vi.advanceTimersByTime(1);
    logger.warn({ reason: "away" }, "Not settled.");
    vi.advanceTimersByTime(10_000);
    logger.warn({ reason: "away" }, "Not settled.");

    expect(said.slice(1)).toEqual([
      [{ reason: "away", unsaid: 1_000 }, "Not settled."],
      [{ reason: "away" }, "Not settled."],
    ]);
  });

  it("says at once what is something else, or has another reason", () => {
    const { logger, said } = setUp();

    logger.warn({ job: "1" }, "Not kept.");
    logger.warn({ job: "2" }, "Not kept.");
    logger.warn({ reason: "away" }, "Not settled.");
    logger.warn({ reason: "full" }, "Not settled.");

    expect(said).toEqual([
      [{ job: "1" }, "Not kept."],
      [{ reason: "away" }, "Not settled."],
      [{ reason: "full" }, "Not settled."],
    ]);
  });

  it("says every error", () => {
    const { logger, said } = setUp();

    logger.error({}, "Broken.");
    logger.error({}, "Broken.");

    expect(said).toEqual([
      ["error", {}, "Broken."],
      ["error", {}, "Broken."],
    ]);
  });

  it("remembers no more than the last hundred", () => {
    const { logger, said } = setUp();
    for (let reason = 0; reason <= 100; reason++) logger.warn({ reason }, "Not settled.");

    logger.warn({ reason: 0 }, "Not settled.");
    logger.warn({ reason: 100 }, "Not settled.");

    expect(said).toHaveLength(102);
  });
});
