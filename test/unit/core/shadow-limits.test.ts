import { describe, expect, it } from "vitest";
import { InvalidOptionError } from "../../../src/core/errors.ts";
import {
  concurrency,
  leakyBucket,
  slidingLog,
  tokenBucket,
} from "../../../src/core/policy/limit-makers.ts";
import {
  compileOver,
  compilePolicy,
  formatPolicy,
  readPolicyElsewhere,
  readPolicyText,
} from "../../../src/core/policy/policy.ts";

const SHADOW = { rate: "50/s", shadow: true } as const;

describe("shadows of a policy", () => {
  it("are separate from the limits that apply", () => {
    const { limits, shadows } = compilePolicy("test", {
      ...SHADOW,
      limits: [leakyBucket("100/s"), tokenBucket({ capacity: 5, refill: "1/s", shadow: true })],
      concurrency: 3,
    });

    expect(limits.map(({ kind }) => kind)).toEqual(["leaky-bucket", "concurrency"]);
    expect(shadows.map(({ kind }) => kind)).toEqual(["leaky-bucket", "token-bucket"]);
  });

  it("do not change the text of a policy without them, and other replicas read them", () => {
    const plain = compilePolicy("test", { rate: "100/s", shadow: false });
    const policy = compilePolicy("test", { limits: [leakyBucket("100/s")], ...SHADOW });

    expect(plain.text).toBe(compilePolicy("test", { rate: "100/s" }).text);
    expect(readPolicyText("test", policy.text, plain)).toEqual(policy);
    expect(readPolicyElsewhere("test", policy.text)).toEqual(policy);
  });

  it("keep the existing limits when an override contains only shadows", () => {
    const under = compilePolicy("test", { rate: "100/s", perKey: { rate: "1/s" } });

    expect(formatPolicy(compileOver("test", SHADOW, under))).toBe(
      "100/s; per key 1/s; in shadow 50/s",
    );
    expect(
      formatPolicy(compileOver("test", { rate: "9/s" }, compileOver("test", SHADOW, under))),
    ).toBe("9/s; per key 1/s");
  });

  it("may be the only limits, until an override adds a limit", () => {
    const alone = compilePolicy("test", SHADOW);
    const other = { rate: "60/s", shadow: true } as const;

    expect(alone).toMatchObject({ limits: [], shadows: [{ count: 1, periodUs: 20_000 }] });
    expect(readPolicyText("test", alone.text, alone)).toEqual(alone);
    expect(readPolicyElsewhere("test", alone.text)).toEqual(alone);
    expect(formatPolicy(compileOver("test", other, alone))).toBe("in shadow 60/s");
    expect(formatPolicy(compileOver("test", { rate: "9/s" }, alone))).toBe("9/s");
    expect(() => compileOver("test", { perKey: { rate: "1/s" } }, alone)).toThrow(
      expect.objectContaining({ name: "InvalidOptionError", option: "shadow" }),
    );
  });

  it("may be smaller than the burst of a limit", () => {
    const limits = [leakyBucket("100/s", { burst: 50 }), slidingLog(20, "1s", { shadow: true })];

    expect(formatPolicy(compilePolicy("test", { limits }))).toBe(
      "100/s with a burst of 50; in shadow 20 in any 1s",
    );
  });

  it.each([
    [
      "twice",
      { ...SHADOW, limits: [leakyBucket("9/s"), leakyBucket("50/s", { shadow: true })] },
      "shadow",
    ],
    ["beside limits of keys alone", { ...SHADOW, perKey: { rate: "1/s" } }, "shadow"],
    ["of keys", { rate: "100/s", perKey: SHADOW }, "perKey.shadow"],
    ["of no rate", { shadow: true, concurrency: 3 }, "rate"],
    ["in a word", { rate: "1/s", shadow: "yes" }, "shadow"],
  ])("are refused %s", (_what, options, option) => {
    expect(() => compilePolicy("test", options)).toThrow(
      expect.objectContaining({ name: "InvalidOptionError", option }),
    );
  });

  it("are refused for concurrency", () => {
    expect(() => concurrency(5, { shadow: true } as object)).toThrow(InvalidOptionError);
  });
});
