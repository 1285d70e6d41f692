/**
 * Writes the tables of `docs/reference/metrics.md` from the table of metrics, and adds a panel to the dashboard for
 * each metric that has none. A test compares the results. `tsx scripts/metrics-docs.ts`
 */
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import {
  BUCKETS_MS,
  COUNTED_METRICS,
  FLEET_METRICS,
  PROCESS_METRICS,
  type FleetFacts,
  type MetricFacts,
} from "../src/core/events/metrics.ts";
import {
  attributeOf,
  FLEET_INSTRUMENTS,
  INSTRUMENTS,
  type Instrument,
} from "../src/insight/metrics/opentelemetry/instruments.ts";

const ROOT = resolve(import.meta.dirname, "..");
const DOCS = resolve(ROOT, "docs/reference/metrics.md");
const DASHBOARD = resolve(ROOT, "ops/grafana/sluice.json");

/** The page, with its tables written anew between their markers. */
export function metricsDocs(page: string): string {
  const tables: Readonly<Record<string, string>> = {
    process: metricsTable(PROCESS_METRICS),
    buckets: bucketsTable(),
    fleet: metricsTable(FLEET_METRICS),
    opentelemetry: instrumentsTable(INSTRUMENTS, COUNTED_METRICS),
    "opentelemetry-fleet": instrumentsTable(FLEET_INSTRUMENTS, FLEET_METRICS),
  };
  return Object.entries(tables).reduce((text, [name, table]) => {
    const [before, after] = [`<!-- metrics: ${name} -->`, `<!-- end of metrics: ${name} -->`];
    const [start, end] = [text.indexOf(before), text.indexOf(after)];
    if (start === -1 || end < start)
      throw new Error(`docs/reference/metrics.md lacks ${before} … ${after}`);
    return `${text.slice(0, start + before.length)}\n\n${table}\n\n${text.slice(end)}`;
  }, page);
}

function metricsTable(metrics: Readonly<Record<string, MetricFacts>>): string {
  const rows = Object.entries(metrics).map(([name, { type, labels, help }]) => [
    code(name),
    type,
    code(labels.join(", ")),
    help,
  ]);
  return tableOf(["name", "type", "labels", "what it says"], rows);
}

function bucketsTable(): string {
  const rows = Object.entries(BUCKETS_MS).map(([name, boundsMs]) => {
    const metrics = Object.entries(COUNTED_METRICS)
      .filter(([, facts]) => facts.type === "histogram" && facts.buckets === name)
      .map(([metric]) => code(metric));
    return [metrics.join(", "), boundsMs.map((ms) => ms / 1_000).join(", ")];
  });
  return tableOf(["histogram", "upper bounds of its buckets, in seconds"], rows);
}

function instrumentsTable<Metric extends string>(
  instruments: readonly Instrument<Metric>[],
  facts: Readonly<Record<Metric, FleetFacts>>,
): string {
  const rows = instruments.map(({ metric, name, unit, description }) => {
    const { labels, opentelemetry } = facts[metric];
    const constant = Object.entries(opentelemetry?.attributes ?? {}).map(
      ([attribute, value]) => `${attribute}=${value}`,
    );
    const attributes = [...constant, ...labels.map(attributeOf)].map(code).join(", ");
    return [code(name), code(unit), attributes, description];
  });
  return tableOf(["name", "unit", "attributes", "what it says"], rows);
}

function code(text: string): string {
  return `\`${text}\``;
}

function tableOf(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const lines = [head, head.map(() => "---"), ...rows];
  return lines.map((cells) => `| ${cells.join(" | ")} |`).join("\n");
}

interface Panel {
  readonly id: number;
  readonly gridPos: { readonly y: number; readonly h: number };
}

interface Dashboard {
  readonly panels: readonly Panel[];
}

/** The dashboard, with a plain panel at its end for each metric that no panel shows yet. */
export function withPanels(dashboard: Dashboard): Dashboard {
  const shown = JSON.stringify(dashboard.panels);
  const missing = Object.entries<MetricFacts>({ ...PROCESS_METRICS, ...FLEET_METRICS }).filter(
    ([name]) => !new RegExp(`\\b${name}(_bucket|_sum|_count)?\\b`).test(shown),
  );
  const panels = [...dashboard.panels];
  for (const [name, facts] of missing) panels.push(panelOf(name, facts, panels));
  return { ...dashboard, panels };
}

function panelOf(name: string, { type, labels, help }: MetricFacts, above: readonly Panel[]) {
  const chosen = ["bucket", "queue"].find((label) => labels.includes(label));
  const selector = chosen === undefined ? "" : `{${chosen}=~"$${chosen}"}`;
  const by = labels.join(", ");
  const expr = {
    histogram: `histogram_quantile(0.99, sum by (le, ${by}) (rate(${name}_bucket${selector}[5m])))`,
    counter: `sum by (${by}) (rate(${name}${selector}[5m]))`,
    gauge: `max by (${by}) (${name}${selector})`,
  }[type];
  const legendFormat = labels.map((label) => `{{${label}}}`).join(" ");
  return {
    id: Math.max(...above.map(({ id }) => id)) + 1,
    title: help.replace(/\.$/, ""),
    type: "timeseries",
    gridPos: { x: 0, y: Math.max(...above.map(({ gridPos: { y, h } }) => y + h)), w: 24, h: 8 },
    datasource: { type: "prometheus", uid: "${source}" },
    fieldConfig: {
      defaults: { unit: name.endsWith("_seconds") ? "s" : "short", min: 0 },
      overrides: [],
    },
    targets: [{ refId: "A", expr, legendFormat }],
  };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  writeFileSync(DOCS, metricsDocs(readFileSync(DOCS, "utf8")));
  const dashboard = JSON.parse(readFileSync(DASHBOARD, "utf8")) as Dashboard;
  writeFileSync(DASHBOARD, JSON.stringify(withPanels(dashboard), null, 2));
  execFileSync("npx", ["oxfmt", DOCS, DASHBOARD], { cwd: ROOT, stdio: "inherit" });
}
