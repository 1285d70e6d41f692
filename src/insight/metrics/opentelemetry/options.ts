import * as z from "zod";
import { readOptions } from "../../../core/input/options.ts";
import type { MetricProducer } from "./metric-data.ts";
import { addingTo } from "./produce.ts";

export interface InstrumentOptions {
  /**
   * Counts in plain numbers, which a reader of the SDK collects: give it one of {@link createMetricProducer}, and a draw
   * costs next to nothing more. Defaults to the instruments of the API, which the SDK is told of at each draw.
   */
  readonly metricProducer?: MetricProducer | undefined;
}

const OPTIONS = z.strictObject({
  metricProducer: z
    .custom<MetricProducer>((given) => addingTo(given as MetricProducer) !== undefined, {
      error: "give what createMetricProducer() returned, or leave it out",
    })
    .optional(),
});

export function readInstrumentOptions(where: string, given: unknown): InstrumentOptions {
  return readOptions(where, OPTIONS, given);
}
