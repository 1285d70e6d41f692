import { describe, expect, it } from "vitest";
import { InvalidOptionError } from "../../../../src/core/errors.ts";
import { createWeights, weightsOrNone } from "../../../../src/queue/lanes/lane-options.ts";

describe("the weights of keys", () => {
  it("are 1 where a table has no entry, or undefined", () => {
    const weightsOf = createWeights("q", { gold: 3, silver: undefined as never });

    const keys = ["gold", "silver", "lead", "constructor", undefined];
    expect(keys.map(weightsOf)).toEqual([[3], [1], [1], [1], undefined]);
  });

  it("follow a table that changes while it is in use", () => {
    const weights: Record<string, number> = { gold: 3 };
    const weightsOf = createWeights("q", weights);

    weights["gold"] = 5;

    expect(weightsOf("gold")).toEqual([5]);
  });

  it.each([0, -1, NaN, 1_001, "3", null])("refuse %j", (weight) => {
    const weigh = (): unknown => createWeights("q", () => weight as number)("gold");

    expect(weigh).toThrow('option "weights"');
  });

  it("name the key for which their function throws, and why", () => {
    const cause = new TypeError("no such tenant");
    const weightsOf = createWeights("q", () => {
      throw cause;
    });

    const weigh = (): unknown => weightsOf("gold");

    expect(weigh).toThrow(InvalidOptionError);
    expect(weigh).toThrow('it threw for key "gold" (TypeError: no such tenant)');
    expect(weigh).toThrow(expect.objectContaining({ option: "weights", cause }));
  });

  it("are 1 for a worker that cannot get any, and it logs that", () => {
    const errors: unknown[] = [];
    const failure = new Error("no such tenant");
    const weightsOf = weightsOrNone(
      () => {
        throw failure;
      },
      (error) => errors.push(error),
    );

    expect([weightsOf("a"), weightsOf("b")]).toEqual([undefined, undefined]);
    expect(errors).toEqual([failure, failure]);
  });
});
