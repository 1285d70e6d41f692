#!/usr/bin/env bash
# @opentelemetry/exporter-prometheus 0.223.0 turns each dot of a name into "_", and does not merge names that become
# equal. The attributes "http.route" and "http_route" of one call become one label twice. promtool 2.42.0 refuses such a
# text. Prometheus 2.42.0 drops the whole scrape, so one series hides all metrics of its process. The instruments
# "jobs.done" and "jobs_done" become one metric that is described twice.
#
# Output seen on 30 November 2026 with Node 20.20.2, exporter 0.223.0, sdk-metrics 2.12.1, promtool 2.42.0:
#   calls_total{http_route="/a",http_route="/b"} 1
#   error while linting: text format parsing error in line 6: duplicate label names for metric "calls_total"
#   2 lines "# TYPE jobs_done_total counter"
#
# Exits with 0 while this is so, and with 1 once the behaviour has changed. Needs promtool on the PATH.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes >/dev/null
npm install --silent --no-audit --no-fund @opentelemetry/api@1.9.1 @opentelemetry/exporter-prometheus@0.223.0 \
  @opentelemetry/sdk-metrics@2.12.1
cat >run.mjs <<'SCRIPT'
import { writeFileSync } from "node:fs";
import { PrometheusExporter, PrometheusSerializer } from "@opentelemetry/exporter-prometheus";
import { MeterProvider } from "@opentelemetry/sdk-metrics";

const exporter = new PrometheusExporter({ preventServerStart: true, withoutScopeInfo: true });
const meter = new MeterProvider({ readers: [exporter] }).getMeter("");
const serializer = new PrometheusSerializer("", false, undefined, false, true);
meter.createCounter("calls").add(1, { "http.route": "/a", http_route: "/b" });
meter.createCounter("jobs.done").add(1);
meter.createCounter("jobs_done").add(2);
const { resourceMetrics } = await exporter.collect();
writeFileSync("metrics.txt", serializer.serialize(resourceMetrics));
SCRIPT
node run.mjs
grep http_route metrics.txt
if promtool check metrics <metrics.txt 2>found.txt; then exit 1; fi
grep "duplicate label names" found.txt
types="$(grep -c "# TYPE jobs_done_total counter" metrics.txt)"
echo "$types lines \"# TYPE jobs_done_total counter\""
test "$types" = 2
