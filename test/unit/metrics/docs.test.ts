import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { FLEET_METRICS } from "sluice/metrics";
import { metricsDocs, withPanels } from "../../../scripts/metrics-docs.ts";

const dashboard = JSON.parse(readFileSync("ops/grafana/sluice.json", "utf8"));

describe("the files that are generated from the table of metrics", () => {
  it("docs/reference/metrics.md matches the table: run `npx tsx scripts/metrics-docs.ts`", () => {
    const page = readFileSync("docs/reference/metrics.md", "utf8");
    const lines = (text: string): string[] =>
      text.split("\n").map((line) => line.replaceAll(/ {2,}|-{3,}/g, " ").replaceAll(/ +/g, " "));

    expect(lines(page)).toEqual(lines(metricsDocs(page)));
  });

  it("the dashboard shows every metric: run `npx tsx scripts/metrics-docs.ts`", () => {
    expect(withPanels(dashboard)).toEqual(dashboard);
  });

  it("the dashboard gets a separate panel for each metric that it does not show", () => {
    const [first] = dashboard.panels;
    const { panels } = withPanels({ ...dashboard, panels: [first] });
    const shown = JSON.stringify(panels);

    expect(Object.keys(FLEET_METRICS).filter((name) => !shown.includes(name))).toEqual([]);
    expect(new Set(panels.map(({ id }) => id)).size).toBe(panels.length);
    expect(shown).toContain(
      String.raw`sum by (bucket) (rate(sluice_bucket_refusals_total{bucket=~\"$bucket\"}[5m]))`,
    );
  });
});
