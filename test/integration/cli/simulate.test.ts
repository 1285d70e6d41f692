import { describe, expect, inject, it } from "vitest";
import { runCli } from "../../support/children/run-cli.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { rulesFiles } from "../../support/rules/rules-files.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const files = rulesFiles();

const sluice = (...args: string[]) =>
  runCli(["--prefix", sluices.prefix(), ...args], { REDIS_URL: inject("redisUrl") });

/** Makes calls through a bucket, and waits until the history has them all. */
async function callStripe(calls: number): Promise<void> {
  const bucket = sluices.open().bucket("stripe", { rate: "1000/s" });
  await Promise.all(Array.from({ length: calls }, () => bucket.draw()));
  const isStored = async (): Promise<boolean> => {
    const { points } = await bucket.history();
    return points.reduce((sum, { started }) => sum + started, 0) === calls;
  };
  await waitUntil(isStored, "all calls are in the history");
}

describe("sluice simulate", () => {
  it("shows what new rules would have done to the calls of the last day", async () => {
    await callStripe(200);
    const rules = files.write("new.yaml", "version: 1\nbuckets: { stripe: { rate: 1/s } }");
    const command = ["simulate", "--rules", rules, "--from-history", "stripe", "--last", "24h"];

    const shown = await sluice(...command);
    const { out: json } = await sluice("--json", ...command);

    expect(shown).toMatchObject({ code: 0, err: "" });
    expect(shown.out).toMatch(/^stripe: (\d+) of \1 calls start within \d+ s; 0 still wait/);
    expect(shown.out).toMatch(/^1\/s delays \d+ calls\.$/m);
    expect(shown.out).toContain("drawn at random from the counts of each ten seconds");
    const found = JSON.parse(json) as { calls: number; endMs: number };
    expect(Math.abs(found.calls - 200)).toBeLessThan(60);
    expect(found.endMs).toBeGreaterThan((found.calls - 2) * 1_000);
  });

  it("names what is missing: a bucket, its rules, calls in the history, or the calls at all", async () => {
    const rules = files.write(
      "new.yaml",
      "buckets: { stripe: { rate: 1/s }, other: { rate: 1/s } }",
    );
    await callStripe(1);

    const [unknown, unruled, neither, unread] = await Promise.all([
      sluice("simulate", "--rules", rules, "--from-history", "strip", "--bucket", "stripe"),
      sluice("simulate", "--rules", rules, "--from-history", "openai"),
      sluice("simulate", "--rules", rules, "--bucket", "stripe"),
      sluice("simulate", "--rules", "/nowhere.yaml", "--from-history", "stripe"),
    ]);

    expect(unknown.code).not.toBe(0);
    expect(unknown.err).toContain("strip");
    expect(unruled.err).toMatch(
      /option "--bucket" is "openai"; give the name of a bucket in .*: stripe, other/,
    );
    expect(neither.err).toContain("give --from-history or --arrivals, one of them");
    expect(unread.err).toContain("the file cannot be read");
  });

  it("takes calls from a CSV file, with their keys and priorities, without a Redis", async () => {
    const rules = files.write(
      "new.yaml",
      "buckets: { stripe: { rate: 10/s, perKey: { rate: 1/s } } }",
    );
    const calls = files.write("calls.csv", "at_ms,key,priority\n500,acme,low\n0,acme,\n9000,zeta,");

    const { code, out } = await runCli(
      [
        "--redis",
        "redis://127.0.0.1:1",
        "--json",
        "simulate",
        "--rules",
        rules,
        "--arrivals",
        calls,
      ],
      {},
    );

    expect(code).toBe(0);
    expect(JSON.parse(out)).toMatchObject({
      calls: 3,
      started: 3,
      byKey: [
        { key: "acme", calls: 2 },
        { key: "zeta", calls: 1 },
      ],
      byPriority: { low: { calls: 1 }, normal: { calls: 2 } },
    });
  });
});

describe("sluice try", () => {
  it("shows how long the calls of the last hours would wait under another rate", async () => {
    await callStripe(200);

    const { code, out, err } = await sluice("try", "stripe", "--rate", "1/s", "--last", "1h");

    expect({ code, err }).toEqual({ code: 0, err: "" });
    expect(out).toMatch(/^now +1000\/s: half of \d+ calls wait up to \d+ ms, .* 0 still wait/m);
    expect(out).toMatch(/^after +1\/s: half of \d+ calls wait up to .*, [1-9]\d+ still wait/m);
    expect(out).toContain("Nothing was changed.");
  });
});
