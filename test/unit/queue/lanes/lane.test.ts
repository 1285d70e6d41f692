import { describe, expect, it } from "vitest";
import { InvalidOptionError } from "../../../../src/core/errors.ts";
import { createWeights, weightOrOne } from "../../../../src/queue/lanes/weights.ts";

describe("the weights of keys", () => {
  it("are 1 where a table names none, or nothing", () => {
    const weightOf = createWeights("q", { gold: 3, silver: undefined as never });

    expect(["gold", "silver", "lead", "constructor", undefined].map(weightOf)).toEqual([
      3,
      1,
      1,
      1,
      undefined,
    ]);
  });

  it("follow a table that changes while it is in use", () => {
    const weights: Record<string, number> = { gold: 3 };
    const weightOf = createWeights("q", weights);

    weights["gold"] = 5;

    expect(weightOf("gold")).toBe(5);
  });

  it.each([0, -1, NaN, 1_001, "3", null])("refuse %j", (weight) => {
    const weigh = (): unknown => createWeights("q", () => weight as number)("gold");

    expect(weigh).toThrow('option "weights"');
  });

  it("name the key for which their function throws, and why", () => {
    const cause = new TypeError("no such tenant");
    const weightOf = createWeights("q", () => {
      throw cause;
    });

    const weigh = (): unknown => weightOf("gold");

    expect(weigh).toThrow(InvalidOptionError);
    expect(weigh).toThrow('it threw for key "gold" (TypeError: no such tenant)');
    expect(weigh).toThrow(expect.objectContaining({ option: "weights", cause }));
  });

  it("are 1 to a worker that cannot be told any, and it says so", () => {
    const errors: unknown[] = [];
    const failure = new Error("no such tenant");
    const weightOf = weightOrOne(
      () => {
        throw failure;
      },
      (error) => errors.push(error),
    );

    expect([weightOf("a"), weightOf("b")]).toEqual([undefined, undefined]);
    expect(errors).toEqual([failure, failure]);
  });
});
