import { mkdirSync, renameSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Redis } from "ioredis";
import { afterAll, expect, inject, it } from "vitest";
import { scriptProcesses } from "../../support/children/script-process.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { ownRedisServers } from "../../support/redis/own-redis.ts";
import { heardLog, rulesFiles } from "../../support/rules/rules-files.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const files = rulesFiles();
const servers = ownRedisServers();
const processes = scriptProcesses();
const operator = new Redis(inject("redisUrl"));
afterAll(() => operator.disconnect());

const RULES = "version: 1\nbuckets: { api: { rate: 50/s }, other: { rate: 7/s } }";

it("are active again after Redis has lost all data", async () => {
  const file = files.write("sluice.yaml", RULES);
  const redis = await servers.start();
  const sluice = redis.open({ rules: file });
  const bucket = sluice.bucket("api", { rate: "10/s" });
  await waitUntil(async () => (await bucket.peek()).policyFrom === "rules", "in force");

  await redis.crash();

  await waitUntil(async () => {
    const found = await sluice.find("other").catch(() => undefined);
    const policies = [bucket, found].map(async (each) => {
      const looked = await each?.peek();
      return `${looked?.policy} by ${looked?.policyFrom}`;
    });
    return (await Promise.all(policies).catch(() => [])).join() === "50/s by rules,7/s by rules";
  }, "in force again");
  expect(await bucket.status()).toMatchObject({ source: "rules", rulesVersion: 1 });
});

it("are active again after a FLUSHALL", async () => {
  const file = files.write("sluice.yaml", RULES);
  const redis = await servers.start();
  const bucket = redis.open({ rules: file }).bucket("api", { rate: "10/s" });
  await waitUntil(async () => (await bucket.peek()).policyFrom === "rules", "in force");

  await redis.operator.flushall();

  await waitUntil(async () => (await bucket.peek()).policyFrom === "rules", "in force again");
  expect(await bucket.status()).toMatchObject({ policy: "50/s", rulesVersion: 1 });
});

it("follow a swapped link above the file, as in Kubernetes", async () => {
  const folder = files.folder();
  const write = (version: number, rate: string): void => {
    mkdirSync(join(folder, `v${version}`));
    writeFileSync(
      join(folder, `v${version}`, "sluice.yaml"),
      `buckets: { api: { rate: ${rate} } }`,
    );
    symlinkSync(`v${version}`, join(folder, "..new"));
    renameSync(join(folder, "..new"), join(folder, "..data"));
  };
  write(1, "50/s");
  symlinkSync(join("..data", "sluice.yaml"), join(folder, "sluice.yaml"));
  const bucket = sluices.open({ rules: join(folder, "sluice.yaml") }).bucket("api");
  await waitUntil(async () => (await bucket.peek()).policy === "50/s", "the first file");

  write(2, "60/s");

  await waitUntil(async () => (await bucket.peek()).policy === "60/s", "the second file");
  expect(await bucket.status()).toMatchObject({ source: "rules" });
});

it("change nothing while the file is being written", async () => {
  const file = files.write("sluice.yaml", RULES);
  const { logger, lines } = heardLog();
  const bucket = sluices.open({ rules: file, logger }).bucket("api");
  await waitUntil(async () => (await bucket.peek()).policyFrom === "rules", "in force");

  // Each text is a file that could be used, or half of one.
  const whole = "version: 2\nbuckets:\n  other: { rate: 8/s }\n  api: { rate: 90/s }\n";
  for (let length = 1; length <= whole.length; length++) {
    writeFileSync(file, whole.slice(0, length));
    await bucket.peek();
  }

  await waitUntil(async () => (await bucket.peek()).policy === "90/s", "the whole file");
  expect(lines).toEqual([]);
});

it("are applied by another process if the applying process dies", async () => {
  const file = files.write("sluice.yaml", RULES);
  const prefix = sluices.prefix();
  const base = `${prefix}:{:fleet}`;
  const first = sluices.open({ rules: file });
  const bucket = first.bucket("api");
  await waitUntil(async () => (await operator.get(`${base}:rules:done`)) !== null, "done");
  const digest = await operator.get(`${base}:rules:done`);
  await bucket.configure({ rate: "1/s" });
  await bucket.configure("code");

  // As a process leaves it that has died half-way.
  await operator.set(`${base}:rules:claim:${digest}`, "dead", "PX", 300);
  await operator.del(`${base}:rules:done`, `${prefix}:{other}`);
  sluices.open({ rules: file });

  await waitUntil(async () => (await operator.get(`${base}:rules:done`)) === digest, "done again");
  expect(await (await first.find("other"))?.peek()).toMatchObject({ policyFrom: "rules" });
});

it("reach all processes, and outlive the processes with the file", async () => {
  const file = files.write("sluice.yaml", RULES);
  const args = [inject("redisUrl"), sluices.prefix(), file];
  const replicas = [1, 2].map(() =>
    processes.start("test/support/processes/rules-replica.ts", { args }),
  );
  const tell = (text: string) => replicas.every(({ stdout }) => stdout.includes(text));
  await waitUntil(async () => tell("50/s (rules 1)"), "both draw");

  files.write("sluice.yaml", "version: 2\nbuckets: { api: { rate: 60/s } }");
  await waitUntil(async () => tell("60/s (rules 2)"), "both have heard of it");
  for (const replica of replicas) replica.signal("SIGKILL");
  await Promise.all(replicas.map(({ ended }) => ended));

  const bucket = sluices.open().bucket("api", { rate: "1/s" });
  await bucket.draw();
  expect(await bucket.status()).toMatchObject({ policy: "60/s", source: "rules" });
  expect(replicas.map(({ stderr }) => stderr)).toEqual(["", ""]);
});

it("can contain 10,000 buckets", async () => {
  const rules = (rate: string): string => {
    const lines = Array.from({ length: 10_000 }, (_, at) => `  b${at}: { rate: ${at + 1}/s }`);
    return `buckets:\n${lines.join("\n")}\n  api: { rate: ${rate} }\n`;
  };
  const file = files.write("sluice.yaml", rules("50/s"));
  const { logger, lines } = heardLog();
  const sluice = sluices.open({ rules: file, logger });
  const bucket = sluice.bucket("api");
  await waitUntil(async () => (await bucket.peek()).policyFrom === "rules", "in force");
  expect((await (await sluice.find("b9999"))?.peek())?.policy).toBe("10000/s");

  files.write("sluice.yaml", rules("60/s"));

  await waitUntil(async () => (await bucket.peek()).policy === "60/s", "the second file");
  files.write("sluice.yaml", "buckets: { api: { rate: 70/s } }");
  await waitUntil(
    async () => (await sluice.find("b9999")) === undefined,
    "the others are forgotten",
  );
  expect(lines).toEqual([]);
});
