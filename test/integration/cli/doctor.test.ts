import { Redis } from "ioredis";
import { expect, it, onTestFinished } from "vitest";
import { runCli } from "../../support/children/run-cli.ts";
import { scriptProcesses } from "../../support/children/script-process.ts";
import { startOwnRedis } from "../../support/redis/for-one-test.ts";

const processes = scriptProcesses();

it("sluice doctor lists settings of Redis that drop limits and jobs, and what to change", async () => {
  const { url } = await startOwnRedis();
  const redis = new Redis(url);
  onTestFinished(() => redis.disconnect());
  const used = Number(/^used_memory:(\d+)/mu.exec(await redis.info("memory"))![1]);
  await redis.config("SET", "maxmemory", Math.round(used * 1.1));
  await redis.config("SET", "maxmemory-policy", "allkeys-lru");
  await redis.config("SET", "appendonly", "no");

  const { out } = await runCli(["doctor", "--json"], { REDIS_URL: url });

  const findings = JSON.parse(out) as { what: string; state: string; remedy?: string }[];
  const of = (what: string) => findings.find((each) => each.what === what);
  expect(of("eviction")).toMatchObject({ state: "bad", found: "allkeys-lru" });
  expect(of("eviction")!.remedy).toContain("CONFIG SET maxmemory-policy noeviction");
  expect(of("memory")).toMatchObject({ state: "warning" });
  expect(of("persistence")).toMatchObject({ state: "warning", found: "no append-only file" });
});

it.each([
  ["localhost:6379", 'option "redis" is'],
  ["http://localhost:6379", 'option "redis" is'],
  ["memory", "there is none in memory"],
])("sluice doctor refuses %s like every other command", async (url, why) => {
  const { code, err } = await runCli(["doctor", "--redis", url], {});

  expect(code).toBe(2);
  expect(err).toContain(why);
});

it("sluice --version prints the version of the package", async () => {
  const version = processes.start("src/cli/main.ts", { args: ["--version"] });

  expect(await version.ended).toBe(0);
  expect(version.stdout).toMatch(/^\d+\.\d+\.\d+\n$/);
});
