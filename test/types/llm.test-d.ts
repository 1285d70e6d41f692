import { describe, expectTypeOf, it } from "vitest";
import type { BucketOptions, Cost } from "sluice";
import { anthropic, openai, type LlmBucket, type OpenAiOptions } from "sluice/llm";

describe("a preset", () => {
  it("is a bucket's options, and estimates a cost", () => {
    expectTypeOf<LlmBucket>().toExtend<BucketOptions>();
    expectTypeOf(anthropic).returns.toEqualTypeOf<LlmBucket>();
    expectTypeOf<ReturnType<LlmBucket["estimate"]>>().toEqualTypeOf<Cost | undefined>();
  });

  it("takes the options of its provider alone", () => {
    expectTypeOf(openai).parameter(0).toEqualTypeOf<OpenAiOptions>();
    // @ts-expect-error Anthropic has no limit of all tokens.
    void (() => anthropic({ tokens: "5/min" }));
    // @ts-expect-error It is a rate, and no number.
    void (() => openai({ tokens: 200_000 }));
  });
});
