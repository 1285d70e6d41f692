import { describe, expect, it } from "vitest";
import type { BucketChange, Sluice } from "sluice";
import { waitUntil } from "../../support/async/wait-until.ts";
import { rulesFiles } from "../../support/rules/rules-files.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const files = rulesFiles();

async function changesOf(sluice: Sluice, count: number): Promise<readonly string[]> {
  let found: readonly BucketChange[] = [];
  await waitUntil(async () => {
    found = await sluice.changes({ bucket: "api" });
    return found.length >= count;
  }, `${count} changes`);
  return found.map(
    ({ by, action, before, after }) =>
      `${by} ${action}: ${before.policy} (${before.source}) to ${after.policy} (${after.source})`,
  );
}

describe.each(["in Redis", "in memory"])("the changes by rules, %s,", (where) => {
  const open = (rules: string): Sluice =>
    sluices.open({ ...(where === "in memory" ? { redis: "memory" } : {}), rules });

  it("are in the log of changes with the state before, and undo does not revert them", async () => {
    const file = files.write(
      "sluice.yaml",
      "version: 1\nbuckets: { api: { rate: 50/s }, b: { rate: 1/s } }",
    );
    const sluice = open(file);
    const bucket = sluice.bucket("api", { rate: "10/s" });
    await bucket.draw();
    await changesOf(sluice, 1);
    await bucket.configure({ rate: "20/s" }, { by: "ann" });

    files.write("sluice.yaml", "version: 2\nbuckets: { api: { rate: 60/s }, b: { rate: 1/s } }");

    expect(await changesOf(sluice, 3)).toEqual([
      "rules rules: 50/s (rules) to 60/s (rules)",
      "ann configure: 50/s (rules) to 20/s (override)",
      "rules rules: 10/s (code) to 50/s (rules)",
    ]);
    const [last] = await sluice.changes({ bucket: "api" });
    expect(last?.reason).toMatch(/^version 2 of .*sluice\.yaml, by /);
    expect((await bucket.undo())?.by).toBe("ann");
    expect((await bucket.peek()).policy).toBe("60/s");
    expect(await sluice.changes({ bucket: "b" })).toHaveLength(1);
  });

  it("are logged when a file no longer names a bucket", async () => {
    const file = files.write("sluice.yaml", "version: 1\nbuckets: { api: { rate: 50/s } }");
    const sluice = open(file);
    await sluice.bucket("api", { rate: "10/s" }).draw();
    await changesOf(sluice, 1);

    files.write("sluice.yaml", "version: 2\nbuckets: {}");

    expect((await changesOf(sluice, 2))[0]).toBe("rules rules: 50/s (rules) to 10/s (code)");
  });
});

it("the changes by rules are logged once, however many processes have the file", async () => {
  const file = files.write("sluice.yaml", "version: 1\nbuckets: { api: { rate: 50/s } }");
  const opened = Array.from({ length: 4 }, () => sluices.open({ rules: file }));
  const [first] = opened as [Sluice];
  const buckets = opened.map((sluice) => sluice.bucket("api", { rate: "10/s" }));
  for (const bucket of buckets) await bucket.draw();
  await changesOf(first, 1);

  files.write("sluice.yaml", "version: 2\nbuckets: { api: { rate: 60/s } }");
  await changesOf(first, 2);
  files.write("sluice.yaml", "version: 3\nbuckets: { api: { rate: 70/s } }");

  expect(await changesOf(first, 3)).toEqual([
    "rules rules: 60/s (rules) to 70/s (rules)",
    "rules rules: 50/s (rules) to 60/s (rules)",
    "rules rules: 10/s (code) to 50/s (rules)",
  ]);
});
