import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { FLEET_METRICS, PROCESS_METRICS } from "sluice/metrics";

it("docs/metrics.md has exactly the metrics that there are, and says of them what they say", () => {
  const page = readFileSync("docs/metrics.md", "utf8");
  const rows = [...page.matchAll(/^\| `(sluice_\w+)` +\| (\w+) +\| `([^`]+)` +\| (.+?) +\|$/gm)];
  const onPage = rows.map(([, name, type, labels, help]) => ({ name, type, labels, help }));

  const inCode = [PROCESS_METRICS, FLEET_METRICS].flatMap((metrics) =>
    Object.entries(metrics).map(([name, { type, labels, help }]) => {
      return { name, type, labels: labels.join(", "), help };
    }),
  );
  expect(onPage).toEqual(inCode);
});
