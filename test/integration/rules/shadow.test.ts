import { describe, expect, it } from "vitest";
import { fleetMetrics } from "sluice/metrics";
import { leakyBucket, type Bucket } from "sluice";
import { startFakeDownstream } from "sluice/testing";
import { waitUntil } from "../../support/async/wait-until.ts";
import { rulesFiles } from "../../support/rules/rules-files.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const files = rulesFiles();

const IN_SHADOW = `
version: 1
buckets:
  api:
    limits: [200/s, { kind: leaky-bucket, rate: 50/s, shadow: true }]
`;
const ENFORCED = "{ version: 2, buckets: { api: { limits: [200/s, 50/s] } } }";

async function waitForPolicy(bucket: Bucket, policy: string): Promise<void> {
  await waitUntil(async () => (await bucket.peek()).policy === policy, policy);
}

/** Slots of calls that all come at once, on the clock of Redis, in ms. */
async function callAll(buckets: readonly Bucket[], each: number): Promise<number[]> {
  const downstream = await startFakeDownstream();
  const calls = buckets.flatMap((bucket) =>
    Array.from({ length: each }, async () => {
      const slot = await bucket.draw();
      await fetch(downstream.url);
      return slot.atMs;
    }),
  );
  const slotsMs = await Promise.all(calls);
  await downstream.close();
  expect(downstream.arrivals).toHaveLength(calls.length);
  return slotsMs.sort((a, b) => a - b);
}

describe("a limit in shadow", () => {
  it("delays no call of several replicas and counts them; the file then enforces it live", async () => {
    const file = files.write("sluice.yaml", IN_SHADOW);
    const first = sluices.open({ rules: file });
    const buckets = [first, sluices.open(), sluices.open()].map((sluice) =>
      sluice.bucket("api", { rate: "200/s" }),
    );
    await buckets[0]!.draw();
    for (const bucket of buckets) await waitForPolicy(bucket, "200/s; in shadow 50/s");
    const before = (await buckets[0]!.status()).shadows[0]!;

    const slotsMs = await callAll(buckets, 20);

    // At 50/s they would have taken 1,180 ms; slots that came too late are drawn, and counted, again.
    const [shadow] = (await buckets[1]!.status()).shadows;
    const calls = shadow!.calls - before.calls;
    expect(calls).toBeGreaterThanOrEqual(60);
    expect(shadow).toMatchObject({ name: "50/s", unit: "calls", wouldHaveBeenRefused: 0 });
    expect(shadow!.wouldHaveWaited - before.wouldHaveWaited).toBeGreaterThanOrEqual(calls - 1);
    expect(gapsOf(slotsMs).filter((ms) => ms < 5.01).length).toBeGreaterThan(10);

    files.write("sluice.yaml", ENFORCED);
    for (const bucket of buckets) await waitForPolicy(bucket, "200/s + 50/s");
    await waitUntil(async () => {
      await buckets[2]!.draw();
      return (await buckets[2]!.peek()).policy === "200/s + 50/s";
    }, "the replica has heard of it");
    const held = await callAll(buckets, 3);

    expect(Math.min(...gapsOf(held))).toBeGreaterThan(19.9);
    expect((await buckets[1]!.status()).shadows).toEqual([]);
  });

  it("is added to the limits of the code if the file sets no others", async () => {
    const file = files.write("sluice.yaml", "buckets: { api: { rate: 50/s, shadow: true } }");
    const bucket = sluices.open({ rules: file }).bucket("api", { rate: "1000/s" });
    await bucket.draw();

    await waitUntil(async () => (await bucket.status()).source === "rules", "the rules");
    expect((await bucket.peek()).policy).toBe("1000/s; in shadow 50/s");
  });

  it("alone lets all calls pass of a bucket that only the file names, until code declares a limit", async () => {
    const file = files.write("sluice.yaml", "buckets: { api: { rate: 1/h, shadow: true } }");
    const watched = sluices.open({ rules: file });
    const byName = watched.bucket("api");

    const slots = await Promise.all(Array.from({ length: 30 }, () => byName.draw()));
    const decision = await byName.tryDraw();

    expect(slots).toHaveLength(30);
    expect(decision).toMatchObject({ allowed: true, limits: [], remaining: Infinity });
    const status = await byName.status();
    expect(status).toMatchObject({ policy: "in shadow 1/h", capPerSecond: undefined });
    expect(status.shadows[0]!.calls).toBeGreaterThanOrEqual(31);
    expect(status.shadows[0]).toMatchObject({ wouldHaveWaited: 1 });

    const declaring = sluices.open().bucket("api", { rate: "1000/s" });
    await waitUntil(async () => {
      await declaring.draw();
      return (await declaring.peek()).policy === "1000/s; in shadow 1/h";
    }, "the limit of the code holds beside the shadow");
  });

  it("is in the overview, and in the metrics of the fleet", async () => {
    const sluice = sluices.open();
    const bucket = sluice.bucket("api", {
      limits: [leakyBucket("1000/s"), leakyBucket("1/s", { shadow: true })],
    });
    for (let call = 0; call < 3; call++) await bucket.draw();

    await waitUntil(async () => {
      const { buckets } = await sluice.overview({ brief: true });
      return buckets.length > 0;
    }, "the overview tells of the bucket");
    const { buckets } = await sluice.overview({ brief: true });
    const { calls, wouldHaveWaited } = buckets[0]!.shadows[0]!;
    expect(calls).toBeGreaterThanOrEqual(3);
    expect(wouldHaveWaited).toBe(calls - 1);

    const metrics = fleetMetrics(sluice, { everyMs: 1_000 });
    const text = await metrics.text();
    const line = (outcome: string): string =>
      `sluice_bucket_shadow_calls_total{bucket="api",limit="1/s",outcome="${outcome}"}`;
    expect(text).toContain(`${line("passed")} 1`);
    expect(text).toContain(`${line("waited")} ${wouldHaveWaited}`);
    metrics.close();
  });
});

function gapsOf(slotsMs: readonly number[]): number[] {
  return slotsMs.slice(1).map((ms, index) => ms - slotsMs[index]!);
}
