import { describe, expect, it } from "vitest";
import { waitUntil } from "../../support/async/wait-until.ts";
import { startOwnCluster } from "../../support/redis/cluster.ts";
import { openSluice } from "../../support/redis/for-one-test.ts";
import { heardLog, rulesFiles } from "../../support/rules/rules-files.ts";

const files = rulesFiles();

describe("in a cluster, the rules of a file", () => {
  it("apply to buckets on all nodes, also spread ones, in processes without the file", async () => {
    const cluster = await startOwnCluster();
    const names = Array.from({ length: 12 }, (_, at) => `b${at}`);
    const entries = (rate: string): string =>
      [...names, "only"].map((name) => `  ${name}: { rate: ${rate} }`).join("\n");
    const spreadOf = (rate: string): string => `  spread: { perKey: { rate: ${rate} } }`;
    const file = files.write(
      "sluice.yaml",
      `version: 1\nbuckets:\n${entries("50/s")}\n${spreadOf("5/s")}`,
    );
    const { logger, lines } = heardLog();
    const parts = { prefix: "s", logger, storeTimeoutMs: 30_000 };
    openSluice({ redis: cluster.open(), ...parts, rules: file });
    const other = openSluice({ redis: cluster.open(), ...parts });
    const buckets = names.map((name) => other.bucket(name, { rate: "100/s" }));
    const spread = other.bucket("spread", { perKey: { rate: "10/s" } });
    const keys = ["k1", "k2", "k3", "k4"];
    const inForce = async (): Promise<Set<string>> => {
      await Promise.all(buckets.map((bucket) => bucket.draw()));
      const looks = await Promise.all([
        ...buckets.map((bucket) => bucket.peek()),
        ...keys.map(async (key) => {
          await spread.draw({ key });
          return spread.peek({ key });
        }),
      ]);
      return new Set(looks.map(({ policy, policyFrom }) => `${policy} by ${policyFrom}`));
    };

    await waitUntil(
      async () => [...(await inForce())].join() === "50/s by rules,per key 5/s by rules",
      "the first rules",
    );
    await waitUntil(async () => (await other.find("only")) !== undefined, "it exists by the file");
    await other.bucket("only").draw();
    expect(await other.bucket("only").status()).toMatchObject({ source: "rules", rulesVersion: 1 });

    files.write("sluice.yaml", `version: 2\nbuckets:\n${entries("60/s")}\n${spreadOf("6/s")}`);
    await waitUntil(
      async () => [...(await inForce())].join() === "60/s by rules,per key 6/s by rules",
      "the second rules",
    );

    files.write("sluice.yaml", "version: 3\nbuckets: {}");
    await waitUntil(
      async () => [...(await inForce())].join() === "100/s by code,per key 10/s by code",
      "the code's policies",
    );
    expect(lines).toEqual([]);
  });

  it("are rejected if they would move keys to nodes where the code does not look", async () => {
    const cluster = await startOwnCluster();
    const file = files.write(
      "sluice.yaml",
      "version: 1\nbuckets: { a: { rate: 50/s }, spread: { perKey: { rate: 5/s } } }",
    );
    const { logger, lines } = heardLog();
    const sluice = openSluice({
      redis: cluster.open(),
      prefix: "s",
      rules: file,
      logger,
      storeTimeoutMs: 30_000,
    });
    const bucket = sluice.bucket("a", { rate: "100/s" });
    const spread = sluice.bucket("spread", { perKey: { rate: "10/s" } });
    await spread.draw({ key: "k" });
    await waitUntil(async () => (await bucket.peek()).policy === "50/s", "the first rules");

    files.write("sluice.yaml", "version: 2\nbuckets: { a: { rate: 60/s }, spread: { rate: 9/s } }");
    await waitUntil(async () => lines.length > 0, "the log says so");

    expect(lines).toEqual([
      expect.stringMatching(/^The rules were not put in force: .*"spread".* give no others/),
    ]);
    expect(await bucket.status()).toMatchObject({ policy: "50/s", rulesVersion: 1 });
  });
});
