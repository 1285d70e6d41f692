import { describe, expect, it } from "vitest";
import { createSluice, InvalidOptionError } from "sluice";
import { createShards } from "../../../src/redis/shards.ts";

const THREE = ["redis://one:6379", "redis://:secret@two:6379", "redis://three:6379/2"];
const FOUR = [...THREE, "redis://four:6379"];
const NAMES = Array.from({ length: 100_000 }, (_, index) => `bucket ${index}`);

describe("names over several servers", () => {
  it("are spread evenly", () => {
    const serverOf = createShards(THREE);
    const counts = new Map<string, number>();
    for (const name of NAMES) counts.set(serverOf(name), (counts.get(serverOf(name)) ?? 0) + 1);

    expect([...counts.keys()].toSorted()).toEqual(THREE.toSorted());
    for (const count of counts.values()) {
      expect(count).toBeGreaterThan(NAMES.length * 0.28);
      expect(count).toBeLessThan(NAMES.length * 0.39);
    }
  });

  it("move to a fourth one, about a quarter of them, and nowhere else", () => {
    const [before, after] = [createShards(THREE), createShards(FOUR)];
    const moved = NAMES.filter((name) => before(name) !== after(name));

    expect(new Set(moved.map(after))).toEqual(new Set(["redis://four:6379"]));
    expect(moved.length).toBeGreaterThan(NAMES.length * 0.2);
    expect(moved.length).toBeLessThan(NAMES.length * 0.3);
  });

  it("stay where they are when a password changes or the order of the list does", () => {
    const before = createShards(THREE);
    const after = createShards(["redis://three:6379/2", "redis://:new@two:6379", "redis://one"]);
    const host = (url: string): string => new URL(url).hostname;

    for (const name of NAMES.slice(0, 1_000)) expect(host(after(name))).toBe(host(before(name)));
  });

  it.each([
    ["none", { shards: [] }],
    ["one twice", { shards: ["redis://one", "redis://:secret@one:6379"] }],
    ["what is no URL of Redis", { shards: ["http://one"] }],
    ["a single server beside them", { redis: "redis://one", shards: ["redis://two"] }],
  ])("are refused for %s", (_what, options) => {
    expect(() => createSluice(options)).toThrow(InvalidOptionError);
  });
});
