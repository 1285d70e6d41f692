/** The metrics of the whole fleet. The one process that exports them reads them from Redis. */
import { Registry } from "prom-client";
import * as z from "zod";
import { InvalidOptionError } from "../../core/errors.ts";
import { FLEET_METRICS, type FleetMetric } from "../../core/events/metrics.ts";
import { readOptions, wholeNumber } from "../../core/input/options.ts";
import { exportMetric } from "./export-metric.ts";
import { createFleetReadings, type FleetParts, type FleetReadings } from "./fleet-facts.ts";
import { metricsOf, REGISTER, type Metrics, type MetricsOptions } from "./process-metrics.ts";
import { registerAll, type MetricsRegister } from "./register.ts";

export interface FleetMetricsOptions extends MetricsOptions {
  /**
   * The interval between two reads of Redis while the metrics are scraped: 1,000 ms to an hour.
   * Defaults to 5,000 ms.
   */
  readonly everyMs?: number | undefined;
}

export interface FleetMetrics extends Metrics {
  /**
   * Stops reading Redis, and removes the metrics from the register. Closing the sluice does the
   * same.
   */
  close(): void;
}

const OPTIONS = z.strictObject({
  register: REGISTER.optional(),
  everyMs: wholeNumber(1_000, 3_600_000, "milliseconds").optional(),
});

const fleetOf = new WeakMap<
  MetricsRegister,
  { readonly sluice: object; readonly metrics: FleetMetrics }
>();

/** Exports the metrics of all processes that share a sluice's Redis. */
export function openFleetMetrics(parts: FleetParts, given: FleetMetricsOptions = {}): FleetMetrics {
  const where = "fleetMetrics()";
  const { register = new Registry() as MetricsRegister, everyMs } = readOptions(
    where,
    OPTIONS,
    given,
  );
  const known = fleetOf.get(register);
  if (known?.sluice === parts.sluice) return known.metrics;
  if (known !== undefined) {
    const remedy = "it has the fleet of another sluice; give each a register of its own";
    throw new InvalidOptionError({ where, option: "register", value: "a register", remedy });
  }
  const readings = createFleetReadings(parts, everyMs);
  const exported = exportAll(readings);
  registerAll(where, register, exported);
  const metrics: FleetMetrics = Object.assign(metricsOf(register), {
    close() {
      readings.close();
      if (fleetOf.delete(register))
        for (const name of exported.keys()) register.removeSingleMetric(name);
    },
  });
  fleetOf.set(register, { sluice: parts.sluice, metrics });
  return metrics;
}

function exportAll(readings: FleetReadings): Map<string, object> {
  return new Map(
    Object.entries(FLEET_METRICS).map(([name, facts]) => {
      const read = () => readings.samples(name as FleetMetric);
      return [name, exportMetric(name, facts, { read, reset: () => {} })];
    }),
  );
}
