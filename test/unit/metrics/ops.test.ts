import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { parse } from "yaml";
import { FLEET_METRICS, PROCESS_METRICS } from "sluice/metrics";

const FILES = {
  alerts: "ops/prometheus/alerts.yml",
  dashboard: "ops/grafana/sluice.json",
  autoscaler: "ops/keda/scaled-object.yaml",
};
const facts = { ...PROCESS_METRICS, ...FLEET_METRICS };
const known = Object.entries(facts).flatMap(([name, { type }]) =>
  type === "histogram" ? ["_bucket", "_sum", "_count"].map((ending) => name + ending) : [name],
);

const read = (path: string): unknown => parse(readFileSync(path, "utf8"));

/** All strings under these names, wherever they are. */
function found(value: unknown, name: string): string[] {
  if (typeof value !== "object" || value === null) return [];
  return Object.entries(value).flatMap(([key, each]) =>
    key === name && typeof each === "string" ? [each] : found(each, name),
  );
}

const queries = Object.values(FILES).flatMap((path) =>
  ["expr", "query"].flatMap((name) => found(read(path), name).map((query) => [path, query])),
);

describe("ops/", () => {
  it.each(queries)("uses metrics and labels that exist: %s, %s", (_path = "", query = "") => {
    const asked = [...query.matchAll(/(sluice_\w+)(?:\{([^}]*)\})?/g)];

    for (const [, name, selector = ""] of asked) {
      expect(known).toContain(name);
      const base = Object.entries(facts).find(([each]) => name!.startsWith(each))![1];
      const labels = [...selector.matchAll(/(\w+)(?:=~|!=|!~|=)/g)].map(([, label]) => label);
      expect([...base.labels, "le"]).toEqual(expect.arrayContaining(labels));
    }
  });

  it.each(queries)("has every bracket and quote closed: %s, %s", (_path = "", query = "") => {
    const open = query.replaceAll(/"[^"]*"/g, "");
    const count = (bracket: string) => open.split(bracket).length;

    expect(count(")")).toBe(count("("));
    expect(count("}")).toBe(count("{"));
    expect(count("]")).toBe(count("["));
    expect(query.split('"').length % 2).toBe(1);
  });

  it("has an alert for the unexplained delay in front of all others, and each has a description", () => {
    const { groups } = read(FILES.alerts) as {
      groups: { rules: { alert: string; expr: string; annotations: { summary: string } }[] }[];
    };
    const rules = groups.flatMap((group) => group.rules);

    expect(rules[0]!.expr).toContain("sluice_queue_unexplained_delay_seconds");
    expect(rules.every(({ annotations }) => annotations.summary.endsWith("."))).toBe(true);
    expect(new Set(rules.map(({ alert }) => alert)).size).toBe(rules.length);
  });

  it("is started by the compose profile, whose files are there", () => {
    const { services } = read("docker-compose.yml") as {
      services: Record<string, { profiles?: string[]; volumes?: string[] }>;
    };
    const observe = Object.values(services).filter(({ profiles }) => profiles?.includes("observe"));
    const files = observe.flatMap(({ volumes = [] }) =>
      volumes.map((volume) => volume.split(":")[0]!),
    );

    expect(observe).toHaveLength(3);
    expect(files.filter((path) => path.endsWith(".yml") || path.endsWith(".json"))).toHaveLength(3);
    for (const path of files.filter((each) => each.includes(".yml"))) {
      expect(() => read(path)).not.toThrow();
    }
    const { scrape_configs: scraped } = read("ops/prometheus/prometheus.yml") as {
      scrape_configs: { static_configs: { targets: string[] }[] }[];
    };
    expect(scraped[0]!.static_configs[0]!.targets).toEqual(["board:3010"]);
  });
});
