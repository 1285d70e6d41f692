import { renameSync, rmSync, utimesSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { InvalidOptionError, type Bucket } from "sluice";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { heardLog, rulesFiles } from "../../support/rules/rules-files.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const files = rulesFiles();

async function inForce(bucket: Bucket): Promise<string> {
  const { policy, source, rulesVersion } = await bucket.status();
  return `${policy} (${source} ${rulesVersion})`;
}

async function waitFor(bucket: Bucket, text: string): Promise<void> {
  await waitUntil(async () => (await inForce(bucket)) === text, text);
}

describe.each(["in Redis", "in memory"])("the rules of a file, %s,", (where) => {
  const open = (rules?: string) =>
    sluices.open({
      ...(where === "in memory" ? { redis: "memory" } : {}),
      ...(rules === undefined ? {} : { rules }),
    });

  it("override the code, and are overridden by an operator", async () => {
    const file = files.write("sluice.yaml", "version: 7\nbuckets: { api: { rate: 50/s } }");
    const bucket = open(file).bucket("api", { rate: "10/s" });

    await bucket.draw();
    await waitFor(bucket, "50/s (rules 7)");
    expect(await bucket.peek()).toMatchObject({ policy: "50/s", policyFrom: "rules" });

    await bucket.configure({ rate: "20/s" }, { by: "ann" });
    expect(await inForce(bucket)).toBe("20/s (override 7)");

    await bucket.undo();
    expect(await inForce(bucket)).toBe("50/s (rules 7)");
    await bucket.configure({ rate: "30/s" });
    await bucket.configure("code");
    expect(await inForce(bucket)).toBe("50/s (rules 7)");
  });

  it("apply again when the time of an override is over", async () => {
    const file = files.write("sluice.yaml", "version: 1\nbuckets: { api: { rate: 500/s } }");
    const bucket = open(file).bucket("api", { rate: "1000/s" });
    await bucket.draw();
    await waitFor(bucket, "500/s (rules 1)");

    await bucket.configure({ rate: "700/s" }, { forMs: 50 });

    await waitUntil(async () => {
      await bucket.draw();
      return (await inForce(bucket)) === "500/s (rules 1)";
    }, "the rules hold again");
    expect((await bucket.status()).setBy).toBeUndefined();
  });

  it("keep the code's value for omitted settings", async () => {
    const file = files.write("sluice.yaml", "version: 1\nbuckets: { api: { rate: 50/s } }");
    const bucket = open(file).bucket("api", { rate: "10/s", perKey: () => ({ rate: "2/s" }) });

    await bucket.draw({ key: "acme" });

    await waitFor(bucket, "50/s; per key by its tier (rules 1)");
    expect((await bucket.peek({ key: "acme" })).limits.map(({ name }) => name)).toEqual([
      "50/s",
      "2/s",
    ]);
  });

  it("are updated when the file changes, and end when the file omits the bucket", async () => {
    const file = files.write("sluice.yaml", "buckets: { api: { rate: 50/s }, b: { rate: 5/s } }");
    const bucket = open(file).bucket("api", { rate: "10/s" });
    await waitUntil(async () => (await bucket.peek()).policy === "50/s", "the first rules");

    files.write("sluice.yaml", "buckets: { api: { rate: 60/s }, b: { rate: 5/s } }");
    await waitUntil(async () => (await bucket.peek()).policy === "60/s", "the second rules");

    files.write("sluice.yaml", "buckets: { b: { rate: 5/s } }");
    await waitUntil(async () => (await bucket.peek()).policyFrom === "code", "the code's policy");
    expect(await inForce(bucket)).toBe("10/s (code undefined)");
  });

  it("stay the same while the file is broken or missing, and the log names the mistake", async () => {
    const file = files.write("sluice.yaml", "version: 1\nbuckets: { api: { rate: 50/s } }");
    const { logger, lines } = heardLog();
    const memory = where === "in memory" ? { redis: "memory" } : {};
    const sluice = sluices.open({ ...memory, rules: file, logger });
    const bucket = sluice.bucket("api", { rate: "10/s" });
    await waitFor(bucket, "50/s (rules 1)");

    files.write("sluice.yaml", "version: 2\nbuckets:\n  api: { rate: 70/s }\n  b: { rat: 5/s }");
    await waitUntil(async () => lines.length > 0, "the log says so");

    expect(lines).toEqual([
      `The rules file has an error, and the previous rules stay in force: ${file}:4:8: option "buckets.b.rat" is "5/s"; there is no such option; did you mean rate?`,
    ]);
    rmSync(file);
    await waitUntil(async () => lines.length > 1, "the log says that the file is gone");
    expect(lines[1]).toMatch(
      /^The rules file cannot be read \(.*ENOENT.*\); the previous rules stay/,
    );
    expect(await inForce(bucket)).toBe("50/s (rules 1)");
    files.write("sluice.yaml", "version: 2\nbuckets: { api: { rate: 70/s } }");
    await waitFor(bucket, "70/s (rules 2)");
  });

  it("create a bucket that only the file names", async () => {
    const file = files.write("sluice.yaml", "version: 3\nbuckets: { api: { rate: 50/s } }");
    const sluice = open(file);

    const bucket = sluice.bucket("api");
    await bucket.draw();

    expect(sluice.bucket("api")).toBe(bucket);
    await waitFor(bucket, "50/s (rules 3)");
    expect(() => sluice.bucket("api", { rate: "1/s" })).toThrow("give them in the first call");
  });
});

it("are updated even if the new file is a copy of an older one", async () => {
  const file = files.write("sluice.yaml", "buckets: { api: { rate: 50/s } }");
  const bucket = sluices.open({ rules: file }).bucket("api", { rate: "10/s" });
  await waitUntil(async () => (await bucket.peek()).policy === "50/s", "the first rules");

  const backup = files.write("backup.yaml", "buckets: { api: { rate: 20/s } }");
  utimesSync(backup, 1, 1);
  renameSync(backup, file);

  await waitUntil(async () => (await bucket.peek()).policy === "20/s", "the older file");
  expect(await bucket.status()).toMatchObject({ source: "rules" });
});

it("let a process without the file open a bucket by Redis alone", async () => {
  const file = files.write("sluice.yaml", "version: 3\nbuckets: { api: { rate: 1/min } }");
  const there = sluices.open({ rules: file });
  await waitFor(there.bucket("api"), "1/min (rules 3)");
  const here = sluices.open();

  const bucket = here.bucket("api");
  const slot = await bucket.draw();
  const decision = await here.bucket("api").tryDraw();

  expect(slot.waitedMs).toBeGreaterThanOrEqual(0);
  expect(decision.allowed).toBe(false);
  expect(await inForce(bucket)).toBe("1/min (rules 3)");
  await waitUntil(async () => (await here.overview()).buckets.length === 1, "it is told of");
  expect((await here.overview()).buckets[0]).toMatchObject({ source: "rules", rulesVersion: 3 });
  const unknown = here.bucket("nobody");
  expect(await rejectionOf(unknown.draw())).toBeInstanceOf(InvalidOptionError);
  expect(await rejectionOf(unknown.status())).toBeInstanceOf(InvalidOptionError);
  expect(await rejectionOf(unknown.tryDraw({ key: "a" }))).toBeInstanceOf(InvalidOptionError);
});

it("override code that is declared later, in a process without the file", async () => {
  const file = files.write("sluice.yaml", "version: 3\nbuckets: { api: { rate: 50/s } }");
  const there = sluices.open({ rules: file });
  await waitFor(there.bucket("api"), "50/s (rules 3)");

  const bucket = sluices.open().bucket("api", { rate: "10/s" });
  await bucket.draw();

  expect(await inForce(bucket)).toBe("50/s (rules 3)");
});

it("follow the newer of two files, and both processes log that", async () => {
  const [older, newer] = [heardLog(), heardLog()];
  const oldFile = files.write("old.yaml", "version: 3\nbuckets: { api: { rate: 30/s } }");
  const newFile = files.write("new.yaml", "version: 5\nbuckets: { api: { rate: 50/s } }");
  const first = sluices.open({ rules: oldFile, logger: older.logger });
  const bucket = first.bucket("api", { rate: "10/s" });
  await waitFor(bucket, "30/s (rules 3)");

  sluices.open({ rules: newFile, logger: newer.logger });
  await waitFor(bucket, "50/s (rules 5)");
  await waitUntil(async () => newer.lines.length > 0, "the newer side says so");
  expect(newer.lines[0]).toMatch(
    /^Version 5 of the rules \(.*new\.yaml\) is in force now, in place of version 3 of the rules \(.*old\.yaml\) of /,
  );
  files.write("old.yaml", "version: 4\nbuckets: { api: { rate: 40/s } }");
  await waitUntil(async () => older.lines.length > 0, "the older side says so");

  expect(older.lines[0]).toMatch(
    /^Version [34] of the rules \(.*old\.yaml\) is not in force: version 5 of the rules \(.*new\.yaml\) of .* is newer; give/,
  );
  expect(await inForce(bucket)).toBe("50/s (rules 5)");
  files.write("old.yaml", "version: 6\nbuckets: { api: { rate: 60/s } }");
  await waitFor(bucket, "60/s (rules 6)");
});

it.each([
  ["is not there", undefined, /option "rules" is .*; the file cannot be read/],
  ["is empty", "", /:1:1: option "the file"/],
  [
    "says what can never work",
    "buckets:\n  a: { rate: 0/s }",
    /:2:14: option "buckets.a.rate" is "0\/s"/,
  ],
])("refuse a file at the start that %s", (_what, text, message) => {
  const file = text === undefined ? "/nowhere/sluice.yaml" : files.write("s.yaml", text);

  expect(() => sluices.open({ rules: file })).toThrow(message);
});
