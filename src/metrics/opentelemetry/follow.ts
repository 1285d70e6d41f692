/** `sluice.wait`: a span for each wait that a limit caused, in the trace of its caller, or linked to the producer of its job. */
import {
  context,
  isSpanContextValid,
  SpanStatusCode,
  trace,
  type Attributes,
  type Link,
  type Tracer,
} from "@opentelemetry/api";
import type { Traces } from "../../core/events/observer.ts";

/** A traceparent, as W3C Trace Context writes it. */
const TRACEPARENT = /^00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$/;
/** A call that went sooner waited for no limit. */
const LEAST_MS = 1;

export function createTraces(tracer: Tracer): Traces {
  return {
    begin(producer) {
      const parent = context.active();
      const links = linksTo(producer);
      const start = (waitedMs: number, attributes: Attributes) => {
        const startTime = Date.now() - waitedMs;
        return tracer.startSpan("sluice.wait", { startTime, attributes, links }, parent);
      };
      return {
        ended({ bucket, priority, waitedMs, limitedBy }) {
          if (waitedMs < LEAST_MS) return;
          start(waitedMs, {
            "sluice.bucket": bucket,
            "sluice.priority": priority,
            ...(limitedBy !== undefined && { "sluice.limit": limitedBy }),
          }).end();
        },
        refused(bucket, waitedMs, error) {
          const { limitedBy, code } = error as { limitedBy?: unknown; code?: unknown };
          const span = start(waitedMs, {
            "sluice.bucket": bucket,
            ...(typeof limitedBy === "string" && { "sluice.limit": limitedBy }),
            "error.type": typeof code === "string" ? code : error.name,
          });
          span.setStatus({ code: SpanStatusCode.ERROR, message: error.message });
          span.end();
        },
      };
    },
    producer() {
      const found = trace.getSpanContext(context.active());
      if (found === undefined || !isSpanContextValid(found)) return undefined;
      const { traceId, spanId, traceFlags } = found;
      return `00-${traceId}-${spanId}-${traceFlags.toString(16).padStart(2, "0")}`;
    },
  };
}

function linksTo(producer: string | undefined): Link[] {
  const [, traceId, spanId, flags] = TRACEPARENT.exec(producer ?? "") ?? [];
  if (traceId === undefined || spanId === undefined) return [];
  const found = { traceId, spanId, traceFlags: Number.parseInt(flags!, 16), isRemote: true };
  return isSpanContextValid(found) ? [{ context: found }] : [];
}
