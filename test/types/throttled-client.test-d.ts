import { describe, expectTypeOf, it } from "vitest";
import type { Bucket } from "../../src/throttle/bucket.ts";
import { throttledClient } from "../../src/throttle/wrap/client.ts";

declare const bucket: Bucket;

class Api {
  readonly #key = "sk_test";
  readonly charges = {
    create: async (amount: number, currency?: string) => `${this.#key}${amount}${currency}`,
  };
  readonly echo = async <T>(value: T): Promise<T> => value;
}

describe("the types of a throttled client", () => {
  it("are those of the client", () => {
    const api = throttledClient(new Api(), bucket);

    expectTypeOf(api).toEqualTypeOf<Api>();
    expectTypeOf(api.charges.create).toEqualTypeOf<
      (amount: number, currency?: string) => Promise<string>
    >();
    expectTypeOf(api.echo("a" as const)).toEqualTypeOf<Promise<"a">>();
    // @ts-expect-error: the amount is a number
    void api.charges.create("5");
  });

  it("take the options of throttled, with key and cost of the arguments", () => {
    const api = throttledClient(new Api(), bucket, {
      methods: ["charges.*"],
      key: (tenant: string) => tenant,
      cost: (_tenant: string, lines: number) => lines,
      priority: "high",
      maxWaitMs: 1_000,
      concurrency: 5,
    });

    expectTypeOf(api).toEqualTypeOf<Api>();
    // @ts-expect-error: there is no such option
    throttledClient(new Api(), bucket, { method: ["charges.*"] });
    // @ts-expect-error: a key is a string
    throttledClient(new Api(), bucket, { key: (amount: number) => amount });
  });

  it("want an object and a bucket", () => {
    // @ts-expect-error: a string has no methods to pace
    throttledClient("stripe", bucket);
    // @ts-expect-error: a bucket can throttle
    throttledClient(new Api(), {});
    expectTypeOf<Pick<Bucket, "throttled">>().toExtend<Parameters<typeof throttledClient>[1]>();
  });
});
