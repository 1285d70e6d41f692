import { metrics, trace } from "@opentelemetry/api";
import { InvalidOptionError } from "../../../core/errors.ts";
import { createTraces } from "./follow.ts";
import { SCOPE } from "./instruments.ts";
import { measure } from "./measure.ts";
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
 * Tells OpenTelemetry what a sluice does in this process, from now on: a span `sluice.wait` for each wait that a limit
 * caused, in the trace of its caller or linked to the producer of a job, with that limit and its bucket; the metrics of
 * the process; and those that messaging systems have, of its queues. It uses the providers that the application has set,
 * and for metrics the `metricProducer`, if it is given one; called again, it changes nothing.
 *
 * @throws {@link InvalidOptionError} when it is given what is no sluice, an unknown option, or a `metricProducer` after
 * the sluice was instrumented without it.
 */
export function instrument(sluice: Sluice, options: InstrumentOptions = {}): void {
  const where = "instrument()";
  const { observing } = partsOf(where, sluice);
  const { metricProducer } = readInstrumentOptions(where, options);
  if (instrumented.has(sluice)) {
    if (metricProducer === undefined || metricProducer === instrumented.get(sluice)) return;
    const remedy = "it was instrumented without this one: give it to the first call";
    throw new InvalidOptionError({
      where,
      option: "metricProducer",
      value: metricProducer,
      remedy,
    });
  }
  instrumented.set(sluice, metricProducer);
  observing.traces = createTraces(trace.getTracerProvider());
  if (metricProducer === undefined) measure(observing, metrics.getMeter(SCOPE));
  else addingTo(metricProducer)!(observing);
}
