import { describe, expect, it } from "vitest";
import {
  headsOfText,
  isWithin,
  decodeKey,
  levelsOfText,
  encodeKey,
} from "../../../src/core/key-path.ts";

const ENDPOINT = encodeKey(["acme", "endpoint-7"]);

describe("the text of a key", () => {
  it("is the plain name itself, and distinct for each path", () => {
    const keys = ["acme", "a/b", ["a", "b"], ["a", "b", "c"], ["a/b", "c"], ["a", "b/c"]];

    expect(encodeKey("acme")).toBe("acme");
    expect(encodeKey(["acme"])).toBe("acme");
    expect(new Set(keys.map(encodeKey)).size).toBe(keys.length);
    expect(keys.map((key) => decodeKey(encodeKey(key)))).toEqual(keys);
  });

  it("contains its levels and its prefixes, the widest first", () => {
    expect(levelsOfText("acme")).toBe(1);
    expect(levelsOfText(ENDPOINT)).toBe(2);
    expect(headsOfText(ENDPOINT)).toEqual(["acme", ENDPOINT]);
  });

  it("is within its prefixes, and not within a name that only begins like them", () => {
    expect(isWithin(ENDPOINT, "acme")).toBe(true);
    expect(isWithin(ENDPOINT, ENDPOINT)).toBe(true);
    expect(isWithin(ENDPOINT, "acm")).toBe(false);
    expect(isWithin("acme", ENDPOINT)).toBe(false);
    expect(isWithin("acme-2", "acme")).toBe(false);
  });
});
