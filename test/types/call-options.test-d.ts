import { describe, expectTypeOf, it } from "vitest";
import {
  optionsReader,
  type CallOptionsRead,
  type DrawCall,
  type OptionsOfCall,
} from "../../src/throttle/call-options.ts";

type Replaced = "key" | "keys" | "cost";

describe("the options of one call", () => {
  it("are all that a wrapped function was given, but for key and cost", () => {
    const read = optionsReader("throttled()", {} as CallOptionsRead);
    type Read = ReturnType<typeof read>;

    expectTypeOf<Omit<Read, Replaced>>().toEqualTypeOf<Omit<CallOptionsRead, Replaced>>();
    expectTypeOf<Pick<Read, "key" | "cost">>().toEqualTypeOf<Pick<DrawCall, "key" | "cost">>();
  });

  it("have an option that is added to those of a wrapped function", () => {
    interface Longer extends CallOptionsRead {
      readonly added: number;
    }
    const read = optionsReader("throttled()", {} as Longer);

    expectTypeOf(read([])).toHaveProperty("added").toEqualTypeOf<number>();
  });

  it("have each option of a draw", () => {
    expectTypeOf<OptionsOfCall<CallOptionsRead>>().toExtend<DrawCall>();
    expectTypeOf<keyof DrawCall>().toExtend<keyof OptionsOfCall<CallOptionsRead>>();
  });
});
