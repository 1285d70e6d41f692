import { expectTypeOf, test } from "vitest";
import type { BucketOptions, OnStoreDown, Sluice, StoreEvent } from "sluice";

declare const sluice: Sluice;

test("a listener is given the event of its name", () => {
  sluice.on("store", (event) => {
    expectTypeOf(event).toEqualTypeOf<StoreEvent>();
    expectTypeOf(event.state).toEqualTypeOf<"up" | "down">();
    expectTypeOf(event.server).toEqualTypeOf<string>();
  });

  // @ts-expect-error there is no such event
  sluice.on("stores", () => {});
});

test("a bucket says what becomes of its calls", () => {
  expectTypeOf<NonNullable<BucketOptions["onStoreDown"]>>().toEqualTypeOf<OnStoreDown>();
  expectTypeOf<"wait" | "refuse" | "open" | { local: number }>().toExtend<OnStoreDown>();
});
