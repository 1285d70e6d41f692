import { expect, it } from "vitest";
import type { NewChange } from "../../../src/core/stores/insight/changes.ts";
import { createMemoryInsight } from "../../../src/stores/memory/memory-insight.ts";
import { combineInsight } from "../../../src/stores/redis/shards.ts";

it("two servers that log changes in the same millisecond each know the state of these changes", async () => {
  const [a, b] = [createMemoryInsight(() => 5), createMemoryInsight(() => 5)];
  const insight = combineInsight([a!, b!], (bucket) => (bucket === "a" ? a! : b!));
  const state = { policy: "1/s", text: "code", source: "code" as const, pausedForMs: 0 };
  const changeOf = (bucket: string): NewChange => ({
    bucket,
    subject: "policy",
    action: "configure",
    key: undefined,
    by: "ann",
    reason: undefined,
    forMs: undefined,
    before: state,
    after: state,
    undoes: undefined,
  });
  const ids = [
    await insight.noteChange(changeOf("a")),
    await insight.noteChange(changeOf("b")),
  ] as const;
  expect(ids[0]).toBe(ids[1]);

  await insight.amendChange({ bucket: "a", id: ids[0] }, { failed: "no" });

  const changes = await insight.changes({ bucket: undefined, before: undefined, limit: 9 });
  expect(changes.map(({ bucket, failed }) => [bucket, failed])).toEqual([
    ["a", "no"],
    ["b", undefined],
  ]);
});
