import { metrics, trace } from "@opentelemetry/api";
import { InvalidOptionError } from "../../../core/errors.ts";
import { createFleetReadings, fleetPartsOf } from "../fleet-facts.ts";
import { createTraces } from "./follow.ts";
import { SCOPE } from "./instruments.ts";
import { measure, measureFleet } from "./measure.ts";
import type { MetricProducer } from "./metric-data.ts";
import { readInstrumentOptions, type InstrumentOptions } from "./options.ts";
import { addingTo } from "./produce.ts";
import type { Sluice } from "../../../sluice/create-sluice.ts";
import { partsOf } from "../../../sluice/parts.ts";

export { createMetricProducer } from "./produce.ts";
export type { InstrumentOptions } from "./options.ts";
export type { MetricProducer } from "./metric-data.ts";

const instrumented = new WeakMap<object, MetricProducer | undefined>();

/**
 * Starts to report what a sluice does in this process to OpenTelemetry:
 *
 * - a span `sluice.wait` for each wait that a limit caused. The span names the limit and its
 *   bucket. It is part of the caller's trace, or linked to the producer of a job.
 * - the metrics of the process, and the standard messaging metrics of its queues.
 * - with `fleet`, gauges of all processes: budgets, members of pools, and limits that adapt.
 *
 * Reports go to the providers that the application has set. If a `metricProducer` is passed,
 * metrics go there instead. Further calls change nothing.
 *
 * @throws {@link InvalidOptionError} when the first argument is not a sluice, for an unknown
 * option, or when a `metricProducer` is passed after a call without a `metricProducer`.
 */
export function instrument(sluice: Sluice, options: InstrumentOptions = {}): void {
  const where = "instrument()";
  const { observing, logger, onClose } = partsOf(where, sluice);
  const { metricProducer, fleet = false } = readInstrumentOptions(where, options);
  if (instrumented.has(sluice)) {
    if (metricProducer === undefined || metricProducer === instrumented.get(sluice)) return;
    const remedy = "the sluice was instrumented without this producer; give it to the first call";
    throw new InvalidOptionError({
      where,
      option: "metricProducer",
      value: metricProducer,
      remedy,
    });
  }
  instrumented.set(sluice, metricProducer);
  observing.traces = createTraces(trace.getTracerProvider());
  const readings = fleet ? createFleetReadings(fleetPartsOf(sluice, logger)) : undefined;
  if (readings !== undefined) onClose(async () => readings.close());
  if (metricProducer !== undefined) return addingTo(metricProducer)!(observing, readings);
  const meter = metrics.getMeter(SCOPE);
  measure(observing, meter);
  if (readings !== undefined) measureFleet(meter, readings);
}
