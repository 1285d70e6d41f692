import { describe, expect, it } from "vitest";
import { InvalidOptionError } from "sluice";
import { matches, readFilter } from "../../../../src/queue/manage/dead-letters.ts";

const job = { key: "acme", reason: "Expired: it did not start within 500 ms", error: {} };
const wrapped = {
  key: "acme",
  reason: "fetch failed",
  error: {
    cause: {
      name: "AggregateError",
      message: "",
      code: "ECONNREFUSED",
      errors: [{ name: "Error", message: "connect to ::1", code: "EADDRNOTAVAIL" }],
    },
  },
};

describe("a filter of failed jobs", () => {
  it.each([
    [{}, true],
    [{ key: "acme" }, true],
    [{ key: "other" }, false],
    [{ reason: "Expired:" }, true],
    [{ reason: "expired:" }, false],
    [{ reason: /^expired:/i }, true],
    [{ reason: /\d+ s$/ }, false],
    [{ key: "acme", reason: "timeout" }, false],
  ])("%j matches the job: %s", (filter, isExpected) => {
    expect(matches(readFilter("failed()", filter), job)).toBe(isExpected);
  });

  it.each([
    [{ code: "ECONNREFUSED" }, true],
    [{ code: "EADDRNOTAVAIL" }, true],
    [{ code: "ECONN" }, false],
    [{ reason: "ECONNREFUSED" }, true],
    [{ reason: /^connect to ::1$/ }, true],
    [{ reason: "fetch failed", code: "ECONNREFUSED" }, true],
    [{ reason: "timeout", code: "ECONNREFUSED" }, false],
  ])("%j matches the errors within an error: %s", (filter, isExpected) => {
    expect(matches(readFilter("failed()", filter), wrapped)).toBe(isExpected);
  });

  it("gives the same result each time, also with a stateful regular expression", () => {
    const filter = readFilter("failed()", { reason: /expired/gi });

    expect([1, 2, 3].map(() => matches(filter, job))).toEqual([true, true, true]);
  });

  it("reads a date as ms since 1970", () => {
    const atMs = 1_790_000_000_000;

    expect(readFilter("failed()", { since: new Date(atMs) }).sinceMs).toBe(atMs);
    expect(readFilter("failed()", { since: atMs }).sinceMs).toBe(atMs);
    expect(readFilter("failed()", {}).sinceMs).toBe(0);
  });

  it.each([
    [{ reasons: "no" }, "reasons", "did you mean reason?"],
    [{ since: "yesterday" }, "since", "give a date, or milliseconds since 1970"],
    [{ since: new Date(Number.NaN) }, "since", "give a date, or milliseconds since 1970"],
    [{ since: -1 }, "since", "give a date, or milliseconds since 1970"],
    [{ since: 1e16 }, "since", "give a date, or milliseconds since 1970"],
    [{ reason: 5 }, "reason", "give a part of the reason"],
    [{ reason: "" }, "reason", "give a part of the reason"],
    [{ code: "" }, "code", "give the code of an error"],
    [{ code: 111 }, "code", "give the code of an error"],
    [{ limit: 0 }, "limit", "whole number of jobs from 1"],
    [{ key: "a\nb" }, "key", "leave out"],
    ["all", "options", "give an object of options"],
  ])("refuses %j with the option and a remedy", (given, option, remedy) => {
    const read = (): unknown => readFilter("purge()", given);

    expect(read).toThrow(InvalidOptionError);
    expect(read).toThrow(`purge(): option "${option}"`);
    expect(read).toThrow(remedy);
  });
});
