import { expectTypeOf, test } from "vitest";
import type {
  AwayEvent,
  BackEvent,
  BucketEvents,
  GivenHandler,
  HandlerInput,
  KeyFilter,
  NoForecastReason,
  NoPromise,
  OfKey,
  ReachableEvent,
  UnreachableEvent,
} from "sluice";

test("a deprecated type is the same as the type that replaces it", () => {
  expectTypeOf<AwayEvent>().toEqualTypeOf<UnreachableEvent>();
  expectTypeOf<BackEvent>().toEqualTypeOf<ReachableEvent>();
  expectTypeOf<GivenHandler<number, string>>().toEqualTypeOf<HandlerInput<number, string>>();
  expectTypeOf<NoPromise>().toEqualTypeOf<NoForecastReason>();
  expectTypeOf<OfKey>().toEqualTypeOf<KeyFilter>();
});

test("an event has the same type under its deprecated name", () => {
  expectTypeOf<BucketEvents["away"]>().toEqualTypeOf<BucketEvents["unreachable"]>();
  expectTypeOf<BucketEvents["back"]>().toEqualTypeOf<BucketEvents["reachable"]>();
});
