import { describe, expect, it } from "vitest";
import { InvalidOptionError } from "../../../src/core/errors.ts";
import { optionsReader, type CallOptions } from "../../../src/throttle/call-options.ts";

const GIVEN = {
  priority: "high",
  maxWaitMs: 500,
  signal: new AbortController().signal,
  settle: () => undefined,
  feedback: false,
  concurrency: 3,
  /** No option of today: whatever else is given has to arrive as well. */
  added: "whole",
} as const satisfies CallOptions & { readonly added: string };

/** The name of a tenant, as a function that is wrapped would be given it. */
const ARGS = ["acme"] as unknown as never[];

describe("the options of one call", () => {
  it("arrive whole where key and cost are values", () => {
    const read = optionsReader("throttled()", { ...GIVEN, key: "acme", cost: 2 });

    expect(read([])).toEqual({ ...GIVEN, key: "acme", cost: 2 });
  });

  it("arrive whole where key and cost are functions", () => {
    const key = (tenant: string): string => tenant;
    const cost = (tenant: string): number => tenant.length;

    const read = optionsReader("throttled()", { ...GIVEN, key, cost });

    expect(read(ARGS)).toEqual({ ...GIVEN, key: "acme", cost: 4 });
  });

  it("are one frozen object for all calls where nothing depends on the arguments", () => {
    const read = optionsReader("throttled()", { priority: "low" });

    expect(read([])).toBe(read(ARGS));
    expect(Object.isFrozen(read([]))).toBe(true);
  });

  it("keep the key of one call from the next", () => {
    const key = (tenant: string): string | undefined => (tenant === "acme" ? tenant : undefined);
    const read = optionsReader("throttled()", { key });

    expect([read(ARGS).key, read(["other"] as unknown as never[]).key]).toEqual([
      "acme",
      undefined,
    ]);
  });

  it("are refused where a function answers with a promise", () => {
    const read = optionsReader("throttled()", { key: (async () => "acme") as never });

    expect(() => read([])).toThrow(InvalidOptionError);
  });
});
