import { metrics, trace } from "@opentelemetry/api";
import { hearToo } from "./core/events/observer.ts";
import { createTraces } from "./metrics/opentelemetry/follow.ts";
import { createMeasuring } from "./metrics/opentelemetry/measure.ts";
import type { Sluice } from "./sluice.ts";
import { partsOf } from "./sluice/parts.ts";

const instrumented = new WeakSet<object>();

/**
 * Tells OpenTelemetry what a sluice does in this process, from now on: a span `sluice.wait` for each wait that a limit
 * caused, with that limit and its bucket, linked to the producer of a job; the metrics of the process; and those that
 * messaging systems have, of its queues. It uses the providers that the application has set; called again, it changes nothing.
 *
 * @throws {@link InvalidOptionError} when it is given what is no sluice.
 */
export function instrument(sluice: Sluice): void {
  const parts = partsOf("instrument()", sluice);
  if (instrumented.has(sluice)) return;
  instrumented.add(sluice);
  const measuring = createMeasuring(metrics.getMeter("sluice"));
  const traces = createTraces(trace.getTracer("sluice"));
  hearToo(parts.observing, { ...measuring, traces });
}
