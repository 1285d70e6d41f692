import { readdir } from "node:fs/promises";
import { describe, expect, it } from "vitest";
import { compilePolicy } from "../../../src/core/policy/policy.ts";
import { allScripts } from "../../support/lua/all-scripts.ts";
import { concurrency, fixedWindow, leakyBucket, slidingLog } from "sluice";

/** What a cluster reckons a key's slot from: what stands between the first { and the next }. */
function tagOf(key: string): string {
  return /\{([^}]+)\}/.exec(key)?.[1] ?? key;
}

/** One limit of each sort, all with keys of their own where they have any. */
const { limits } = compilePolicy("test", {
  limits: [leakyBucket("1/s"), slidingLog(5, "1s"), fixedWindow(5, "1min"), concurrency(3)],
});
const scope = { key: "{a}:b%", limits };
/** All that a script may be asked about, for three keys at once. */
const request = {
  prefix: "sluice",
  bucket: "bucket",
  queue: "bucket",
  terms: { limits, shares: [], text: "", version: 0 },
  key: "{a}:b%",
  scope,
  scopes: [scope],
  ids: ["1", "}{2"],
  jobSet: { lane: "{a}:b%" },
  slotRequest: { scopes: [scope] },
  // In a cluster, other buckets may lie on other nodes.
  buckets: ["bucket", "}{"],
  areHere: false,
  state: "done",
  ordered: ["{a}:b%", "}{"],
  attempts: ["{a}:b%", "}{"].map((name) => ({ tenant: name, endpoint: name, message: name })),
  plan: { lists: [{ limits, keys: ["{a}:b%", "}{", "::1"] }] },
  slotRequests: ["{a}:b%", "}{", "::1"].map((key) => ({ scopes: [{ key, limits }] })),
};
const scripts = await allScripts();

describe("in a cluster", () => {
  it.each(scripts)("$name finds all its keys in the slot of its bucket or queue", (script) => {
    const keys = script.keys(request);

    expect(keys.length).toBeGreaterThan(0);
    // What is known of all processes lies under a separate tag. The log of warnings belongs to its bucket.
    const isOfBucket =
      !script.name.startsWith("insight/") || script.name.endsWith("/warnings-read");
    // The caller gives the key of a limiter, which contains its id.
    const isOfLimiter = script.name === "limiter-report";
    const tag = isOfLimiter ? tagOf(request.key) : isOfBucket ? "bucket" : ":fleet";
    expect([...new Set(keys.map(tagOf))]).toEqual([tag]);
  });

  it("this file covers every script of the folder", async () => {
    const lua = await readdir(new URL("../../../lua/", import.meta.url), { recursive: true });
    const files = lua.filter((file) => /^(?!lib\/).+\.lua$/.test(file));

    // Two kinds of input may go to one script.
    const known = new Set(scripts.map(({ name }) => `${name}.lua`));
    expect([...known].toSorted()).toEqual(files.toSorted());
  });
});
