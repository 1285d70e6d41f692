import { writeFileSync } from "node:fs";
import { describe, expect, inject, it } from "vitest";
import { runCli } from "../../support/children/run-cli.ts";
import { scriptProcesses } from "../../support/children/script-process.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { rulesFiles } from "../../support/rules/rules-files.ts";
import { ask, openServers } from "../../support/server/open-server.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const files = rulesFiles();
const processes = scriptProcesses();
const servers = openServers();

/** Runs `sluice` beside the sluices of the test. */
function sluice(...args: string[]) {
  return runCli(["--prefix", sluices.prefix(), ...args], { REDIS_URL: inject("redisUrl") });
}

describe("sluice rules", () => {
  it("checks a file without a Redis, and lists each problem by line and column", async () => {
    const good = files.write("good.yaml", "version: 3\nbuckets: { api: { rate: 50/s } }");
    const bad = files.write("bad.yaml", "buckets:\n  api: { rat: 50/s }\n  b: { rate: 5 }");

    const found = await sluice("--redis", "redis://127.0.0.1:1", "rules", "check", good);
    const refused = await sluice("rules", "check", bad);

    expect(found).toEqual({ code: 0, out: `${good}: good, 1 bucket, version 3\n`, err: "" });
    expect(refused.code).toBe(1);
    expect(refused.err.split("\n").slice(0, 3)).toEqual([
      `${bad}:2:10: buckets.api.rat is "50/s"; there is no such option; did you mean rate?`,
      expect.stringMatching(/:3:14: buckets\.b\.rate is 5; write whole calls per time/),
      `sluice: ${bad} has 2 problems.`,
    ]);
    const { out } = await sluice("--json", "rules", "check", bad);
    expect(JSON.parse(out)).toMatchObject({ problems: [{ line: 2, column: 10 }, { line: 3 }] });
    const hostile = files.write("hostile.yaml", 'buckets: { "a\u202Eb": 5, c: "\u009B2J" }');
    expect((await sluice("rules", "check", hostile)).err).not.toMatch(/[^\P{C}\n]/u);
    expect((await sluice("rules", "check", "/nowhere.yaml")).code).toBe(2);
    expect((await sluice("rules", "chek", good)).code).toBe(2);
  });

  it("shows a change of weights, even of a key that the policy's text does not name", async () => {
    const rules = (version: number, weight: number) =>
      files.write(
        "turns.yaml",
        `version: ${version}\nbuckets: { api: { rate: 60/min, fair: { weights: { a: 2, b: 2, c: 2, d: 2, e: 2, f: ${weight} } } } }`,
      );
    const service = sluices.open();
    await service.bucket("api", { rate: "10/s" }).draw();
    await waitUntil(async () => (await service.overview()).buckets.length === 1, "it is reported");

    expect((await sluice("rules", "diff", rules(3, 3))).out).toMatch(
      /^api +10\/s \(code\) +60\/min; weights a 2, b 2, c 2, d 2, e 2, …$/m,
    );
    expect((await sluice("rules", "apply", rules(3, 3))).code).toBe(0);
    expect((await sluice("rules", "diff", rules(3, 3))).out).toBe("Nothing would change.\n");
    expect((await sluice("rules", "diff", rules(4, 5))).out).toMatch(
      /; other weights, floors or shares$/m,
    );
  });

  it("shows the changes of a file, applies it, and does not overwrite newer rules", async () => {
    const file = files.write("sluice.yaml", "version: 3\nbuckets: { api: { rate: 50/s } }");
    const service = sluices.open();
    const bucket = service.bucket("api", { rate: "10/s" });
    await bucket.draw();
    await waitUntil(async () => (await service.overview()).buckets.length === 1, "it is told of");

    expect((await sluice("rules", "diff", file)).out).toMatch(/^api +10\/s \(code\) +50\/s$/m);
    const applied = await sluice("rules", "apply", file);
    expect(applied).toEqual({
      code: 0,
      out: `${file}: version 3 is in force for 1 bucket\n`,
      err: "",
    });
    expect(await bucket.status()).toMatchObject({
      policy: "50/s",
      source: "rules",
      rulesVersion: 3,
    });
    expect((await sluice("buckets")).out).toMatch(/^api +50 .* rules, version 3$/m);
    expect((await sluice("rules", "diff", file)).out).toBe("Nothing would change.\n");

    const older = files.write("older.yaml", "version: 2\nbuckets: { api: { rate: 20/s } }");
    const expected = await sluice("rules", "diff", older);
    expect(expected.out).toMatch(/^api +50\/s \(rules\) +20\/s$/m);
    expect(expected.err).toContain("apply would fail: version 3 (");
    const refused = await sluice("rules", "apply", older);
    expect(refused.code).toBe(5);
    expect(refused.err).toContain("was not put in force: version 3 (");
    expect((await bucket.peek()).policy).toBe("50/s");

    const undated = files.write("undated.yaml", "buckets: { api: { rate: 30/s } }");
    const { code, err } = await sluice("rules", "apply", undated);
    expect([code, err]).toEqual([
      0,
      expect.stringContaining("states a version then counts as older"),
    ]);
    expect((await sluice("--redis", "redis://127.0.0.1:1", "rules", "apply", file)).code).toBe(4);
  });

  it("lists a bucket that only a rules file names, before any draw, and forgets it with the rules", async () => {
    const file = files.write("sluice.yaml", "version: 1\nbuckets: { api: { rate: 50/s } }");
    await sluice("rules", "apply", file);

    const buckets = await sluice("buckets");
    const one = await sluice("bucket", "api");
    const missing = await sluice("bucket", "apii");
    const top = await sluice("top", "--count", "1");

    expect(buckets.out).toMatch(/^api +50 +no calls yet /m);
    expect(one.out).toMatch(/^actual: +no calls yet$/m);
    expect(missing.err).toContain("there are api");
    expect(top.out).toMatch(/^api +50 +no calls yet /m);
    const service = sluices.open();
    const { url } = await servers.open(sluices.open(), { insecureLocal: true });
    const listed = await ask(`${url}/api/v1/buckets`);
    expect(listed.json).toMatchObject({ total: 1, buckets: [{ name: "api", hasCalls: false }] });

    await service.bucket("api").draw();
    await waitUntil(async () => (await sluice("buckets")).out.includes(" 0.1 "), "it has calls");
    files.write("sluice.yaml", "version: 2\nbuckets: { other: { rate: 50/s } }");
    await sluice("rules", "apply", file);
    const { buckets: kept } = await service.overview();
    expect(kept.map(({ name, hasCalls }) => [name, hasCalls])).toEqual([
      ["api", true],
      ["other", false],
    ]);
    files.write("sluice.yaml", "version: 3\nbuckets: {}");
    await sluice("rules", "apply", file);
    expect((await service.overview()).buckets.map(({ name }) => name)).toEqual(["api"]);
  });

  it("watches the file of a server", async () => {
    const file = files.write("sluice.yaml", "version: 3\nbuckets: { api: { rate: 50/s } }");
    const service = sluices.open();
    const bucket = service.bucket("api", { rate: "10/s" });
    await bucket.draw();

    const serve = ["serve", "--port", "0", "--insecure-local", "--rules", file];
    const server = processes.start("src/cli/main.ts", {
      args: ["--prefix", sluices.prefix(), ...serve],
      env: { REDIS_URL: inject("redisUrl") },
    });
    await waitUntil(async () => (await bucket.peek()).policy === "50/s", "the first rules");
    writeFileSync(file, "version: 4\nbuckets: { api: { rate: 60/s } }");
    await waitUntil(async () => (await bucket.peek()).policy === "60/s", "the second rules");

    server.signal("SIGTERM");
    await server.ended;
    expect(await bucket.status()).toMatchObject({ source: "rules", rulesVersion: 4 });
  });
});
