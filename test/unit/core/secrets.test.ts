import { describe, expect, it } from "vitest";
import { InvalidOptionError } from "../../../src/core/errors.ts";
import { reasonOf, withoutSecrets } from "../../../src/core/describe.ts";

const numbered = (count: number): object =>
  Object.fromEntries(Array.from({ length: count }, (_, at) => [`n${at}`, at]));

describe("the value of an option in an error", () => {
  it("is searched in at most a thousand places, however large it is", () => {
    let reads = 0;
    const many = new Proxy(numbered(10_000), {
      get(target, name) {
        reads += 1;
        return Reflect.get(target, name);
      },
    });

    withoutSecrets("data", { many });

    expect(reads).toBeLessThanOrEqual(1_000);
    expect(reads).toBeGreaterThan(0);
  });

  it("is unchanged when it is bytes", () => {
    const data = Buffer.alloc(10);

    expect(withoutSecrets("data", data)).toBe(data);
  });

  it("is copied without the passwords within that bound", () => {
    const given = { host: "h", password: "hunter2" };

    expect(withoutSecrets("redis", given)).toEqual({ host: "h", password: "***" });
    expect(given.password).toBe("hunter2");
  });
});

describe("a text in an error", () => {
  it("is cut short, and loses the password of a URL at its beginning", () => {
    const value = `redis://user:hunter2@host/${"x".repeat(1_000_000)}`;

    const { message } = new InvalidOptionError({ where: "w", option: "o", value, remedy: "r" });

    expect(message).toContain('"redis://***@host/x');
    expect(message).toContain("(1000017 characters)");
    expect(message.length).toBeLessThan(150);
  });
});

describe("the reason of an error", () => {
  it.each<[string, unknown, string]>([
    [
      "has that of its cause",
      new TypeError("fetch failed", { cause: new Error("no route") }),
      "TypeError: fetch failed (no route)",
    ],
    [
      "has that of its innermost cause",
      new Error("a", { cause: new Error("b", { cause: new Error("c") }) }),
      "Error: a (c)",
    ],
    [
      "repeats no words",
      new Error("no route to it", { cause: new Error("no route") }),
      "Error: no route to it",
    ],
    [
      "has the code of a cause without a message",
      new Error("a", { cause: Object.assign(new AggregateError([]), { code: "ECONNREFUSED" }) }),
      "Error: a (ECONNREFUSED)",
    ],
    [
      "hides the password in it",
      new Error("a", { cause: new Error("redis://u:secret@h") }),
      "Error: a (redis://***@h)",
    ],
  ])("%s", (_what, error, expected) => {
    expect(reasonOf(error)).toBe(expected);
  });

  it("ends for a cycle of causes", () => {
    const error = new Error("a");
    error.cause = error;

    expect(reasonOf(error)).toBe("Error: a");
  });
});
