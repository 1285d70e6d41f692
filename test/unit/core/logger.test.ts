import { describe, expect, it } from "vitest";
import { guarded, sampled, type Logger } from "../../../src/core/logger.ts";
import { fakeTimers } from "../../support/async/fake-timers.ts";

const pass = fakeTimers();

function setUp() {
  const said: unknown[] = [];
  const logger = sampled(
    {
      warn: (facts, message) => void said.push([facts, message]),
      error: (facts, message) => void said.push(["error", facts, message]),
    },
    () => performance.now(),
  );
  return { logger, said };
}

describe("a sampled logger", () => {
  it("logs a warning once in ten seconds, and then the number of suppressed ones", async () => {
    const { logger, said } = setUp();
    for (let call = 0; call < 1_000; call++) logger.warn({ reason: "away" }, "Not settled.");
    await pass(9_999);
    logger.warn({ reason: "away" }, "Not settled.");
    expect(said).toEqual([[{ reason: "away" }, "Not settled."]]);

    await pass(1);
    logger.warn({ reason: "away" }, "Not settled.");
    await pass(10_000);
    logger.warn({ reason: "away" }, "Not settled.");

    expect(said.slice(1)).toEqual([
      [{ reason: "away", unsaid: 1_000 }, "Not settled."],
      [{ reason: "away" }, "Not settled."],
    ]);
  });

  it("logs another warning immediately, but not one that differs only by its reason", () => {
    const { logger, said } = setUp();

    logger.warn({ job: "1" }, "Not kept.");
    logger.warn({ job: "2" }, "Not kept.");
    for (let key = 0; key < 200; key++) {
      logger.warn({ reason: `no tier for ${key}` }, `Not settled: no tier for ${key}`);
    }

    expect(said).toEqual([
      [{ job: "1" }, "Not kept."],
      [{ reason: "no tier for 0" }, "Not settled: no tier for 0"],
    ]);
  });

  it("logs every error", () => {
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
    for (let what = 0; what <= 100; what++) logger.warn({}, `Not settled: ${what}`);

    logger.warn({}, "Not settled: 0");
    logger.warn({}, "Not settled: 100");

    expect(said).toHaveLength(102);
  });
});

describe("a logger that fails", () => {
  const failed = 'The logger failed: Error: disk full. The lost message: "a" is away.';

  function setUpFailing(fail: () => void) {
    const said: unknown[] = [];
    const instead: Logger = {
      warn: (facts, message) => void said.push(["warn", facts, message]),
      error: (facts, message) => void said.push(["error", facts, message]),
    };
    return { logger: guarded({ warn: fail, error: fail }, instead), said };
  }

  it.each([
    [
      "throws",
      () => {
        throw new Error("disk full");
      },
    ],
    ["rejects", () => Promise.reject(new Error("disk full"))],
  ])("causes no error if it %s, and the message goes to the other logger", async (_how, fail) => {
    const { logger, said } = setUpFailing(fail);

    logger.warn({ job: "1" }, '"a" is away.');
    logger.error({ job: "2" }, '"a" is away.');
    await Promise.resolve();

    expect(said).toEqual([
      ["warn", { job: "1" }, failed],
      ["error", { job: "2" }, failed],
    ]);
  });

  it("causes no error if the other logger fails too", () => {
    const broken: Logger = {
      warn() {
        throw new Error("closed");
      },
      error() {
        throw new Error("closed");
      },
    };

    const logging = (): void => guarded(broken, broken).error({}, "Broken.");

    expect(logging).not.toThrow();
  });
});
