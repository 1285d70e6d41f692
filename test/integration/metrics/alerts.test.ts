import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { stringify } from "yaml";
import { findPromtool } from "../../support/metrics/promtool.ts";

const run = promisify(execFile);
const RULES = resolve("ops/prometheus/alerts.yml");
const DAY_S = 86_400;
let promtool: string;
beforeAll(async () => {
  promtool = await findPromtool();
}, 620_000);

interface Case {
  readonly alert: string;
  /** The label by which alerts are counted. Defaults to the bucket. */
  readonly by?: string;
  /** How often Prometheus scrapes. */
  readonly every: string;
  /** Metrics in the notation of promtool: `_` is a scrape that was missed. */
  readonly series: Readonly<Record<string, string>>;
  readonly at: string;
  /** The labels of those that fire then. */
  readonly firing: readonly Readonly<Record<string, string>>[];
}

/** What promtool says: that all is well, or what else fires. */
async function testRules({
  alert,
  by = "bucket",
  every,
  series,
  at,
  firing,
}: Case): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "sluice-alerts-"));
  onTestFinished(() => rm(folder, { recursive: true }));
  const path = join(folder, "test.yml");
  const asked = {
    interval: every,
    input_series: Object.entries(series).map(([name, values]) => ({ series: name, values })),
    // Names of alerts and labels alone: their texts may change.
    promql_expr_test: [
      {
        expr: `count by (${by}) (ALERTS{alertname="${alert}",alertstate="firing"})`,
        eval_time: at,
        exp_samples: firing.map((labels) => ({ labels: stringifyLabels(labels), value: 1 })),
      },
    ],
  };
  await writeFile(
    path,
    stringify({ rule_files: [RULES], evaluation_interval: "15s", tests: [asked] }),
  );
  return run(promtool, ["test", "rules", path]).then(
    ({ stdout }) => stdout,
    (error: { readonly stdout: string; readonly stderr: string }) => error.stdout + error.stderr,
  );
}

function stringifyLabels(labels: Readonly<Record<string, string>>): string {
  return `{${Object.entries(labels)
    .map(([name, value]) => `${name}="${value}"`)
    .join(",")}}`;
}

const BUCKET = { bucket: "stripe" };
const OUTBOX = { outbox: "public.sluice_outbox" };

describe("ops/prometheus/alerts.yml", () => {
  it("is valid", async () => {
    const { stdout } = await run(promtool, ["check", "rules", RULES]);

    expect(stdout).toContain("SUCCESS");
  });

  it("fires for an override of a day, though a scrape was missed", async () => {
    const said = await testRules({
      alert: "SluiceOverridden",
      every: "1m",
      // In force for 23 h 50 min at first; the board restarts after 5 minutes.
      series: {
        'sluice_bucket_override_seconds{bucket="stripe"}': `${DAY_S - 600}+60x5 _x3 ${DAY_S - 60}+60x10`,
      },
      at: "14m",
      firing: [BUCKET],
    });

    expect(said).toContain("SUCCESS");
  });

  it("does not fire for an override of an hour", async () => {
    const said = await testRules({
      alert: "SluiceOverridden",
      every: "1m",
      series: { 'sluice_bucket_override_seconds{bucket="stripe"}': "3600+60x30" },
      at: "30m",
      firing: [],
    });

    expect(said).toContain("SUCCESS");
  });

  it("fires when a downstream rejects a call every 4 s, with cooldowns shorter than a scrape", async () => {
    const said = await testRules({
      alert: "SluiceCoolingDown",
      every: "15s",
      series: {
        'sluice_bucket_refusals_total{bucket="stripe"}': "0+4x40 _x3 172+4x80",
        'sluice_bucket_cooldown_seconds{bucket="stripe"}': "0x120",
      },
      at: "30m",
      firing: [BUCKET],
    });

    expect(said).toContain("SUCCESS");
  });

  it("does not fire for a few rejections, or for old ones", async () => {
    const said = await testRules({
      alert: "SluiceCoolingDown",
      every: "15s",
      series: { 'sluice_bucket_refusals_total{bucket="stripe"}': "100x20 102x100" },
      at: "30m",
      firing: [],
    });

    expect(said).toContain("SUCCESS");
  });

  it.each([
    ["fires for a row that waits for minutes", "10+60x30", [OUTBOX]],
    ["does not fire for rows that wait for seconds", "2x30", []],
  ])("%s in an outbox", async (_what, values, firing) => {
    const said = await testRules({
      alert: "SluiceOutboxLags",
      by: "outbox",
      every: "1m",
      series: { 'sluice_outbox_oldest_seconds{outbox="public.sluice_outbox"}': values },
      at: "10m",
      firing,
    });

    expect(said).toContain("SUCCESS");
  });
});
