import { randomUUID } from "node:crypto";
import { Redis } from "ioredis";
import { afterAll, describe, expect, inject, it } from "vitest";
import type { RulesOffer } from "../../src/core/stores/insight/rules.ts";
import type { InsightStore } from "../../src/core/stores/insight/store.ts";
import { createMemoryInsight } from "../../src/stores/memory/memory-insight.ts";
import { createRedisInsight } from "../../src/stores/redis/facts/insight.ts";

const redis = new Redis(inject("redisUrl"));
afterAll(() => redis.disconnect());

function openRedisInsight(): InsightStore {
  const send = async <T>(_bucket: string, run: () => Promise<T>): Promise<T> => run();
  return createRedisInsight(redis, `t${randomUUID()}`, { send, sendOnce: send });
}

function offerOf(digest: string, version: number, changedAtMs = version): RulesOffer {
  return { digest, version, changedAtMs, replica: "a", file: "/etc/a|b.yaml", by: "web|7:1" };
}

const IDLE = { waiting: [0, 0, 0, 0], oldestMs: 0, startedIn10s: 1, limitedBy: undefined };

describe.each([
  ["Redis", openRedisInsight],
  ["memory", () => createMemoryInsight()],
])("the rules of files, in %s,", (_name, open) => {
  it("rank by their version, and then by the time of the file's change", async () => {
    const insight = open();

    const verdicts = [];
    for (const offer of [
      offerOf("first", 2),
      offerOf("older", 1),
      offerOf("same", 2, 1),
      offerOf("touched", 2, 3),
      offerOf("newer", 1_764_000_000_000),
      offerOf("first", 2),
    ]) {
      verdicts.push((await insight.offerRules(offer)).verdict);
    }

    expect(verdicts).toEqual(["apply", "older", "older", "apply", "apply", "older"]);
    expect(await insight.rules()).toEqual({
      version: 1_764_000_000_000,
      changedAtMs: 1_764_000_000_000,
      digest: "newer",
      file: "/etc/a|b.yaml",
      by: "web|7:1",
    });
  });

  it("are done once all buckets have them, unless newer rules arrive first", async () => {
    const insight = open();
    await insight.offerRules(offerOf("a", 1));
    await insight.rulesApplied({ digest: "a" });
    const again = await insight.offerRules(offerOf("a", 1, 9));
    await insight.offerRules(offerOf("b", 2));
    await insight.rulesApplied({ digest: "b" });

    // What is late has put its own policies over newer ones.
    await insight.rulesApplied({ digest: "a" });

    expect(again).toMatchObject({ verdict: "done", before: { version: 1 } });
    expect(await insight.offerRules(offerOf("b", 2))).toMatchObject({ verdict: "apply" });
  });

  it("list the policy of each bucket while they are active", async () => {
    const insight = open();
    await insight.offerRules(offerOf("a", 1));
    const note = { digest: "a", version: 1, policies: [["api", "p|q"] as const] };

    expect(await insight.noteRules(note)).toEqual([undefined]);
    expect(await insight.noteRules(note)).toEqual(["p|q"]);
    expect((await insight.bucket("api")).rules).toEqual({ text: "p|q", version: 1 });
    expect(await insight.ruledNames()).toEqual(["api"]);
    await insight.offerRules(offerOf("b", 2));
    expect(await insight.noteRules(note)).toBeUndefined();
    await insight.noteRules({ digest: "b", version: 2, policies: [["api", undefined]] });

    expect((await insight.bucket("api")).rules).toBeUndefined();
    expect(await insight.declaredOf(["api"])).toEqual([undefined]);
  });

  it("list a bucket before its first call, and afterwards as long as it has calls", async () => {
    const insight = open();
    const names = async (): Promise<readonly string[]> =>
      (await insight.bucketNames({ after: "", limit: 9 })).names;
    await insight.offerRules(offerOf("a", 1));
    const policies = [
      ["used", "p"],
      ["api", "p"],
      ["queues:mail", "s"],
    ] as const;
    await insight.noteRules({ digest: "a", version: 1, policies });
    await insight.report({
      replica: "a",
      about: { host: "web", pid: 7, version: "1", startedAtMs: 1 },
      isLast: false,
      buckets: [{ bucket: "used", state: IDLE, started: 1, refused: 0, declared: undefined }],
      queues: [],
      workers: undefined,
    });

    expect(await names()).toEqual(["api", "used"]);
    expect((await insight.bucket("api")).hasCalls).toBe(false);
    expect((await insight.bucket("used")).hasCalls).toBe(true);
    const ended = policies.map(([name]) => [name, undefined] as const);
    await insight.noteRules({ digest: "a", version: 1, policies: ended });
    expect(await names()).toEqual(["used"]);
  });
});

it("one process at a time applies rules", async () => {
  const insight = openRedisInsight();

  const first = await insight.offerRules(offerOf("a", 1));
  const other = await insight.offerRules({ ...offerOf("a", 1), replica: "b" });
  const again = await insight.offerRules(offerOf("a", 1));

  expect([first, other, again].map(({ verdict }) => verdict)).toEqual(["apply", "wait", "apply"]);
});
