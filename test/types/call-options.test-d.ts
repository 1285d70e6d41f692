import { describe, expectTypeOf, it } from "vitest";
import type { DrawOptions } from "sluice";
import {
  optionsReader,
  type CallOptions,
  type OptionsOfCall,
} from "../../src/throttle/call-options.ts";

type Replaced = "key" | "cost";

describe("the options of one call", () => {
  it("are all that a wrapped function was given, but for key and cost", () => {
    const read = optionsReader("throttled()", {} as CallOptions);
    type Read = ReturnType<typeof read>;

    expectTypeOf<Omit<Read, Replaced>>().toEqualTypeOf<Omit<CallOptions, Replaced>>();
    expectTypeOf<Pick<Read, Replaced>>().toEqualTypeOf<Pick<DrawOptions, Replaced>>();
  });

  it("have an option that is added to those of a wrapped function", () => {
    interface Longer extends CallOptions {
      readonly added: number;
    }
    const read = optionsReader("throttled()", {} as Longer);

    expectTypeOf(read([])).toHaveProperty("added").toEqualTypeOf<number>();
  });

  it("have each option of a draw", () => {
    expectTypeOf<OptionsOfCall<CallOptions>>().toExtend<DrawOptions>();
    expectTypeOf<keyof DrawOptions>().toExtend<keyof OptionsOfCall<CallOptions>>();
  });
});
