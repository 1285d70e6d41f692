import { describe, expect, it } from "vitest";
import { InvalidOptionError } from "../../../../src/core/errors.ts";
import { fixedWindow } from "../../../../src/core/policy/limit-makers.ts";
import { createMemoryStore } from "../../../../src/stores/memory/memory-store.ts";
import { createTestBucket } from "../../../support/draws/test-bucket.ts";

const fiveAMinute = { limits: [fixedWindow(5, "1min")] };

describe("what tryDraw is given", () => {
  it("reads options of any other kind than a plain object with care", async () => {
    const { bucket } = createTestBucket({ perKey: fiveAMinute });
    class Options {
      readonly key = "k";
      get cost(): number {
        return -3;
      }
    }
    const hidden = Object.defineProperty({ key: "k" }, "cost", { value: -3 });

    await expect(bucket.tryDraw(new Options())).rejects.toThrow(InvalidOptionError);
    await expect(bucket.tryDraw(hidden)).rejects.toThrow(InvalidOptionError);
    await expect(bucket.tryDraw(Object.assign([], { key: "k" }) as object)).rejects.toThrow(
      InvalidOptionError,
    );
    await bucket.close();
  });

  it("reads a key once, so that it draws for the key that it has looked at", async () => {
    const { bucket } = createTestBucket({ perKey: fiveAMinute });
    const keys = ["k", "a{b}"];
    const options = {
      get key() {
        return keys.shift();
      },
    };

    const { slot } = await bucket.tryDraw(options);

    expect(slot?.key).toBe("k");
    expect(keys).toEqual(["a{b}"]);
    await bucket.close();
  });

  it("goes by what options were when it was asked, also if it has to ask again", async () => {
    const store = createMemoryStore();
    const here = createTestBucket({ perKey: fiveAMinute }, { store }).bucket;
    const there = createTestBucket({ perKey: fiveAMinute }, { store }).bucket;
    await here.tryDraw({ key: "warm" });
    await there.configure({ perKey: { limits: [fixedWindow(9, "1min")] } });
    const options = { key: "a" };

    const asked = here.tryDraw(options);
    options.key = "b";
    await asked;

    expect((await here.tryDraw({ key: "a" })).remaining).toBe(7);
    expect((await here.tryDraw({ key: "b" })).remaining).toBe(8);
    await Promise.all([here.close(), there.close()]);
  });
});
