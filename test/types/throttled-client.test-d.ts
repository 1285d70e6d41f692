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

  it("take the paths of methods, and no others", () => {
    interface Client {
      readonly charges: {
        create(amount: number): Promise<string>;
        readonly limits: { readonly daily: number; check?(): boolean };
        readonly name: string;
      };
      readonly refunds: { create(): void; list(): void };
      readonly byName: Readonly<Record<string, () => void>>;
      ping(): void;
    }
    const client = {} as Client;
    const untyped = {} as { readonly api: ReturnType<typeof JSON.parse> };
    const path = "charges.create" as string;
    const paths = ["charges.create", "ping"];

    const paced = throttledClient(client, bucket, {
      methods: [
        "charges.create",
        "charges.*",
        "*.create",
        "*.list",
        "*",
        "charges.limits.check",
        "ping",
        "byName.each",
      ],
    });
    throttledClient(client, bucket, { methods: [path, "ping"] });
    throttledClient(untyped, bucket, { methods: ["api.any.path", "api", "*.any"] });
    throttledClient(client, bucket, { methods: paths });
    throttledClient(client as unknown as Record<string, unknown>, bucket, { methods: ["a.b"] });

    expectTypeOf(paced).toEqualTypeOf<Client>();
    // @ts-expect-error: there is no such method
    throttledClient(client, bucket, { methods: ["charges.creat"] });
    // @ts-expect-error: there is nothing of this name
    throttledClient(client, bucket, { methods: ["charge.create"] });
    // @ts-expect-error: it holds methods, and is none
    throttledClient(client, bucket, { methods: ["charges"] });
    // @ts-expect-error: no method, but a string
    throttledClient(client, bucket, { methods: ["charges.name"] });
    // @ts-expect-error: nothing has such a method
    throttledClient(client, bucket, { methods: ["charges.*.remove"] });
    // @ts-expect-error: one of them is wrong
    throttledClient(client, bucket, { methods: ["charges.create", "ping.pong"] });
    // @ts-expect-error: a path has no empty names
    throttledClient(client, bucket, { methods: ["charges."] });
  });

  it("want an object and a bucket", () => {
    // @ts-expect-error: a string has no methods to pace
    throttledClient("stripe", bucket);
    // @ts-expect-error: a bucket can throttle
    throttledClient(new Api(), {});
    expectTypeOf<Pick<Bucket, "throttled">>().toExtend<Parameters<typeof throttledClient>[1]>();
  });
});
