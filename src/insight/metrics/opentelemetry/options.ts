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
  /**
   * Also reports gauges of all processes that share the sluice's Redis: the balances of budgets, the
   * members of pools, and the limits that adapt to latency. Set it in one process only and for one
   * sluice, because a sum over several would count each value several times. Defaults to false.
   */
  readonly fleet?: boolean | undefined;
}

const OPTIONS = z.strictObject({
  metricProducer: z
    .custom<MetricProducer>((given) => addingTo(given as MetricProducer) !== undefined, {
      error: "give the result of createMetricProducer(), or omit the option",
    })
    .optional(),
  fleet: z.boolean({ error: "give true or false" }).optional(),
});

export function readInstrumentOptions(where: string, given: unknown): InstrumentOptions {
  return readOptions(where, OPTIONS, given);
}
