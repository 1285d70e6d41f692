import { describe, expectTypeOf, it } from "vitest";
import {
  isSluiceError,
  SluiceError,
  WaitTooLongError,
  type AnySluiceError,
  type ErrorCode,
} from "sluice";

describe("the types of an error", () => {
  it("are known by its code, once it is known to be Sluice's", () => {
    const thrown: unknown = new Error("anything");
    if (!isSluiceError(thrown)) return;

    expectTypeOf(thrown).toEqualTypeOf<AnySluiceError>();
    switch (thrown.code) {
      case "ERR_WAIT_TOO_LONG":
        expectTypeOf(thrown.retryAfterMs).toEqualTypeOf<number>();
        expectTypeOf(thrown.limitedBy).toEqualTypeOf<string>();
        break;
      case "ERR_INVALID_OPTION":
        expectTypeOf(thrown.option).toEqualTypeOf<string>();
        break;
      default:
        // @ts-expect-error: not every other error has it
        expectTypeOf(thrown.retryAfterMs).toBeNumber();
    }
  });

  it("are those of all errors that there are", () => {
    expectTypeOf<AnySluiceError["code"]>().toEqualTypeOf<ErrorCode>();
    expectTypeOf<AnySluiceError>().toExtend<SluiceError>();
  });

  it("are known by the classes", () => {
    const thrown: unknown = new Error("anything");
    if (thrown instanceof WaitTooLongError) {
      expectTypeOf(thrown).toEqualTypeOf<WaitTooLongError>();
      expectTypeOf<(typeof thrown)["code"]>().toEqualTypeOf<"ERR_WAIT_TOO_LONG">();
    }
  });

  it("are known by the code after instanceof SluiceError", () => {
    const thrown: unknown = new Error("anything");
    if (thrown instanceof SluiceError && thrown.code === "ERR_LINE_FULL") {
      expectTypeOf(thrown.waiting).toEqualTypeOf<number>();
    }
  });
});
