import { describe, expectTypeOf, it } from "vitest";
import {
  readAnswer,
  type Answer,
  type Bucket,
  type BucketOptions,
  type FeedbackContext,
  type FetchOptions,
  type ThrottledFetch,
} from "sluice";

type Read = Exclude<NonNullable<BucketOptions["feedback"]>, false>;

describe("readAnswer", () => {
  it("is a promise of an answer for a response, and may be one for anything else", () => {
    expectTypeOf(readAnswer(new Response())).toEqualTypeOf<Promise<Answer>>();
    expectTypeOf(readAnswer({} as unknown)).toEqualTypeOf<Answer | Promise<Answer>>();
    expectTypeOf<Awaited<ReturnType<typeof readAnswer>>>().toEqualTypeOf<Answer>();
  });
});

describe("feedback", () => {
  it("accepts every kind of function that earlier versions accepted", () => {
    expectTypeOf<() => { coolMs: number }>().toExtend<Read>();
    expectTypeOf<(result: unknown) => undefined>().toExtend<Read>();
    expectTypeOf<() => { coolMs: number; scope: "key" }>().toExtend<Read>();
  });

  it("may return the given answer, changed or not, also in a promise", () => {
    type Listener = (answer: unknown, context: FeedbackContext) => unknown;

    expectTypeOf<(result: unknown, { answer }: FeedbackContext) => Answer>().toExtend<Read>();
    expectTypeOf<() => Promise<Answer | undefined>>().toExtend<Read>();
    expectTypeOf<() => Promise<{ refused: boolean; afterMs: number }>>().toExtend<Read>();
    expectTypeOf<Read>().toExtend<Listener>();
  });

  it("may not return a cooldown without a time", () => {
    expectTypeOf<() => { scope: "key" }>().not.toExtend<Read>();
  });
});

describe("fetch.with", () => {
  it("takes tries, another fetch and a decision on retries", () => {
    const withAll = (bucket: Bucket) =>
      bucket.fetch.with({
        tries: 1,
        fetch: async () => new Response(),
        retry: (response, { answer, tries, method }) =>
          response.ok || answer.retry || tries > 1 || method === "GET",
      });

    expectTypeOf(withAll).returns.toEqualTypeOf<ThrottledFetch>();
    expectTypeOf<{ retry: true }>().not.toExtend<FetchOptions>();
  });
});
