import * as table from "../../core/events/metrics.ts";
import { openFleetMetrics, type FleetMetrics, type FleetMetricsOptions } from "./fleet-metrics.ts";
import type { Sluice } from "../../sluice/create-sluice.ts";
import { partsOf } from "../../sluice/parts.ts";

/** What each process exports of itself: a sum over all processes is of the fleet. */
export const PROCESS_METRICS: Readonly<Record<table.ProcessMetric, table.MetricFacts>> =
  table.PROCESS_METRICS;

/** What is of all processes together: one exporter has them, or a sum would count them several times. */
export const FLEET_METRICS: Readonly<Record<table.FleetMetric, table.MetricFacts>> =
  table.FLEET_METRICS;

/**
 * The metrics of all processes that share the Redis of a sluice: what waits, for what, and who set it. Export them from one
 * process, such as the server: a sum over several would count the same several times. Each process has its own by
 * `sluice.metrics()`, which may share the register.
 *
 * @throws {@link InvalidOptionError} when an option can never work, or the register has other metrics of these names.
 */
export function fleetMetrics(sluice: Sluice, options: FleetMetricsOptions = {}): FleetMetrics {
  const parts = partsOf("fleetMetrics()", sluice);
  const { logger, onClose } = parts;
  const metrics = openFleetMetrics(
    {
      overview: (page) => sluice.overview(page),
      queueStatus: async (name) => (await sluice.findQueue(name))?.status(),
      logger,
      sluice,
    },
    options,
  );
  onClose(async () => metrics.close());
  return metrics;
}

export type { FleetMetrics, FleetMetricsOptions } from "./fleet-metrics.ts";
export type { FleetMetric, MetricFacts, ProcessMetric } from "../../core/events/metrics.ts";
export type { Metrics, MetricsOptions } from "./process-metrics.ts";
export type { MetricsRegister } from "./register.ts";
