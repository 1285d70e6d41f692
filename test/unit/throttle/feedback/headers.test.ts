import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { headerOf } from "../../../../src/throttle/feedback/headers.ts";
import { readProperty } from "../../../../src/throttle/feedback/properties.ts";

/** As axios builds it: names keep their case, `get` minds none. */
function axiosHeaders(values: Readonly<Record<string, string>>): object {
  return Object.assign(
    Object.create({
      get(this: Record<string, string>, name: string) {
        const key = Object.keys(this).find((own) => own.toLowerCase() === name.toLowerCase());
        return key === undefined ? undefined : this[key];
      },
    }) as object,
    values,
  );
}

function throwing(): never {
  throw new Error("hostile");
}

const revoked = Proxy.revocable({}, {});
revoked.revoke();

describe("a header", () => {
  it.each([
    ["fetch Headers", new Headers({ "Retry-After": "120" })],
    ["a plain object", { "retry-after": "120" }],
    ["a plain object in another case", { "Retry-After": "120" }],
    ["a plain object with a number", { "retry-after": 120 }],
    ["a plain object with a list", { "retry-after": ["120"] }],
    [
      "an object without a prototype",
      Object.assign(Object.create(null) as object, { "retry-after": "120" }),
    ],
    ["AxiosHeaders", axiosHeaders({ "Retry-After": "120" })],
    [
      "pairs",
      [
        ["date", "now"],
        ["Retry-After", "120"],
      ],
    ],
    ["a raw array", ["Date", "now", "Retry-After", "120"]],
    ["a raw array of bytes", [Buffer.from("Retry-After"), Buffer.from("120")]],
    ["a Map", new Map([["Retry-After", "120"]])],
  ])("is found in %s", (_kind, source) => {
    expect(headerOf(source, "retry-after")).toBe("120");
  });

  it("may be asked for in any case", () => {
    expect(headerOf({ "retry-after": "120" }, "Retry-After")).toBe("120");
  });

  it.each([
    ["a list", { ratelimit: ['"a";r=1', '"b";r=2'] }],
    ["a raw array", ["RateLimit", '"a";r=1', "ratelimit", '"b";r=2']],
    [
      "fetch Headers",
      new Headers([
        ["ratelimit", '"a";r=1'],
        ["ratelimit", '"b";r=2'],
      ]),
    ],
  ])("given twice in %s is one list", (_kind, source) => {
    expect(headerOf(source, "ratelimit")).toBe('"a";r=1, "b";r=2');
  });

  it.each([
    ["nothing", undefined],
    ["null", null],
    ["a string", "retry-after: 120"],
    ["a number", 5],
    ["an empty object", {}],
    ["an empty array", []],
    ["a raw array without its last value", ["retry-after"]],
    ["pairs that are none", [[], [1], "x", null]],
    ["a value that is no text", { "retry-after": { at: 5 } }],
    [
      "a getter that throws",
      {
        get "retry-after"() {
          return throwing();
        },
      },
    ],
    ["a get that throws", { get: throwing }],
    ["a Proxy that throws", new Proxy({}, { get: throwing, ownKeys: throwing })],
    ["a Proxy that was revoked", revoked.proxy],
    ["a Proxy of a Map", new Proxy(new Map(), {})],
    [
      "an endless array",
      new Proxy([], { get: (_t, key) => (key === "length" ? 2 ** 53 - 1 : "x") }),
    ],
  ])("is not found in %s", (_kind, source) => {
    expect(headerOf(source, "retry-after")).toBeUndefined();
  });

  it("is a text or nothing, whatever comes in", () => {
    const name = fc.constantFrom("retry-after", "get", "length", "__proto__", "constructor", "");
    fc.assert(
      fc.property(
        fc.anything({ withMap: true, withNullPrototype: true }),
        name,
        (source, asked) => {
          expect(["string", "undefined"]).toContain(typeof headerOf(source, asked));
        },
      ),
      { numRuns: 10_000 },
    );
  });
});

describe("a property", () => {
  it("that throws is as if it were not there", () => {
    expect(
      readProperty(
        {
          get status() {
            return throwing();
          },
        },
        "status",
      ),
    ).toBeUndefined();
    expect(readProperty(revoked.proxy, "status")).toBeUndefined();
  });
});
