import * as table from "../../core/events/metrics.ts";
import { fleetPartsOf } from "./fleet-facts.ts";
import { openFleetMetrics, type FleetMetrics, type FleetMetricsOptions } from "./fleet-metrics.ts";
import type { Sluice } from "../../sluice/create-sluice.ts";
import { partsOf } from "../../sluice/parts.ts";

/**
 * The metrics that each process exports about itself. Sum them over all processes to get totals.
 */
export const PROCESS_METRICS: Readonly<Record<table.ProcessMetric, table.MetricFacts>> =
  table.PROCESS_METRICS;

/**
 * The metrics of the whole fleet. Export them from one process only, because a sum would count them
 * several times.
 */
export const FLEET_METRICS: Readonly<Record<table.FleetMetric, table.MetricFacts>> =
  table.FLEET_METRICS;

/**
 * Exports the metrics of all processes that share the sluice's Redis: pending calls, what limits
 * them, and which limits are set. Call this in one process only, such as the server, because a sum
 * over several processes would count each value several times. Each process exports its own metrics
 * with `sluice.metrics()`, and may use the same register.
 *
 * @throws {@link InvalidOptionError} when an option can never work, or the register already has
 * different metrics with these names.
 */
export function fleetMetrics(sluice: Sluice, options: FleetMetricsOptions = {}): FleetMetrics {
  const { logger, onClose } = partsOf("fleetMetrics()", sluice);
  const metrics = openFleetMetrics(fleetPartsOf(sluice, logger), options);
  onClose(async () => metrics.close());
  return metrics;
}

export type { FleetMetrics, FleetMetricsOptions } from "./fleet-metrics.ts";
export type { FleetMetric, MetricFacts, ProcessMetric } from "../../core/events/metrics.ts";
export type { Metrics, MetricsOptions } from "./process-metrics.ts";
export type { MetricsRegister } from "./register.ts";
