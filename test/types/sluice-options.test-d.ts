import type { Cluster, Redis } from "ioredis";
import { expectTypeOf, test } from "vitest";
import type { SluiceOptions } from "sluice";

type Given = NonNullable<SluiceOptions["redis"]>;

/** What a program sees that has another version of ioredis than this package: a class with other members. */
interface OtherClient {
  readonly status: "wait" | "ready";
  readonly options: { readonly host?: string; readonly gone?: boolean };
  duplicate(override?: { readonly host?: string }): OtherClient;
  get(key: string): Promise<string | null>;
}

test("Redis is given by a URL, options, or a client of any version of ioredis", () => {
  expectTypeOf<string>().toExtend<Given>();
  expectTypeOf<{ host: string; port: number }>().toExtend<Given>();
  expectTypeOf<Redis>().toExtend<Given>();
  expectTypeOf<Cluster>().toExtend<Given>();
  expectTypeOf<OtherClient>().toExtend<Given>();
  expectTypeOf<number>().not.toExtend<Given>();
  expectTypeOf<{ status: string }>().not.toExtend<Given>();
});
