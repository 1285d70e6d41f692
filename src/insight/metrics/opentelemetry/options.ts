import * as z from "zod";
import { readOptions } from "../../../core/input/options.ts";
import type { MetricProducer } from "./metric-data.ts";
import { addingTo } from "./produce.ts";

export interface InstrumentOptions {
  /**
   * Counts in plain numbers that an SDK reader collects later. With a producer from
   * {@link createMetricProducer}, a draw costs almost nothing extra. Defaults to the instruments of
   * OpenTelemetry's API, which record at each draw.
   */
  readonly metricProducer?: MetricProducer | undefined;
}

const OPTIONS = z.strictObject({
  metricProducer: z
    .custom<MetricProducer>((given) => addingTo(given as MetricProducer) !== undefined, {
      error: "give the result of createMetricProducer(), or omit the option",
    })
    .optional(),
});

export function readInstrumentOptions(where: string, given: unknown): InstrumentOptions {
  return readOptions(where, OPTIONS, given);
}
