import { createHash } from "node:crypto";
import { describe, expect, it } from "vitest";
import { createSluice, InvalidOptionError } from "sluice";
import { createShards, serverId } from "../../../src/stores/redis/shards.ts";

const THREE = ["redis://one:6379", "redis://:secret@two:6379", "redis://three:6379/2"];
const FOUR = [...THREE, "redis://four:6379"];
const FIVE = [...FOUR, "redis://[::1]:6380"];
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

  it("move to a fourth one in about a quarter of the cases, and nowhere else", () => {
    const [before, after] = [createShards(THREE), createShards(FOUR)];
    const moved = NAMES.filter((name) => before(name) !== after(name));

    expect(new Set(moved.map(after))).toEqual(new Set(["redis://four:6379"]));
    expect(moved.length).toBeGreaterThan(NAMES.length * 0.2);
    expect(moved.length).toBeLessThan(NAMES.length * 0.3);
  });

  it.each([
    ["", "two", "two"],
    ["a", "two", "four"],
    ["b", "one", "one"],
    ["stripe", "three", "four"],
    ["orders", "three", "four"],
    ["emails", "two", "two"],
    ["tenant 17", "two", "[::1]"],
    ["ключ", "three", "three"],
    ["名前", "three", "[::1]"],
    ["💧", "one", "one"],
    ["webhooks:eu", "two", "two"],
    ["x".repeat(300), "one", "four"],
  ])(
    "have the same place as with hashring 3.2.0, which earlier versions used: %j",
    (name, ofThree, ofFive) => {
      const hostOf = (urls: readonly string[]): string =>
        new URL(createShards(urls)(name)).hostname;

      expect([hostOf(THREE), hostOf(FIVE)]).toEqual([ofThree, ofFive]);
    },
  );

  it("have the same place as with hashring 3.2.0, for 20,000 names, by the hash of that list", () => {
    const serverOf = createShards(FIVE);
    const list = createHash("sha256");
    for (const name of NAMES.slice(0, 20_000)) list.update(`${serverId(serverOf(name))}\n`);

    expect(list.digest("hex")).toBe(
      "c36628442ac42eb7a0eb47ee2fc858ec1904dbc0f2954918748d291db35610d6",
    );
  });

  it("keep their place when a password or the order of the list changes", () => {
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
