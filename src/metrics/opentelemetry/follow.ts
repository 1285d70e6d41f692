/** `sluice.wait`: a span for each wait that a limit caused, in the trace of its caller, or linked to the producer of its job. */
import {
  context,
  isSpanContextValid,
  SpanStatusCode,
  trace,
  type Attributes,
  type Context,
  type Link,
  type Span,
  type Tracer,
} from "@opentelemetry/api";
import type { Traces, WaitTrace } from "../../core/events/observer.ts";

/** A traceparent, as W3C Trace Context writes it. */
const TRACEPARENT = /^00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$/;
/** A call that went sooner waited for no limit. */
const LEAST_MS = 1;

/** A class, since every call that waits makes one: its methods are on the prototype. */
class Wait implements WaitTrace {
  readonly tracer: Tracer;
  readonly producer: string | undefined;
  readonly parent: Context = context.active();

  constructor(tracer: Tracer, producer: string | undefined) {
    this.tracer = tracer;
    this.producer = producer;
  }

  ended({ bucket, priority, waitedMs, limitedBy }: Parameters<WaitTrace["ended"]>[0]): void {
    if (waitedMs < LEAST_MS) return;
    this.start(waitedMs, {
      "sluice.bucket": bucket,
      "sluice.priority": priority,
      ...(limitedBy !== undefined && { "sluice.limit": limitedBy }),
    }).end();
  }

  refused(bucket: string, waitedMs: number, error: Error): void {
    const { limitedBy, code } = error as { limitedBy?: unknown; code?: unknown };
    const span = this.start(waitedMs, {
      "sluice.bucket": bucket,
      ...(typeof limitedBy === "string" && { "sluice.limit": limitedBy }),
      "error.type": typeof code === "string" ? code : error.name,
    });
    span.setStatus({ code: SpanStatusCode.ERROR, message: error.message });
    span.end();
  }

  private start(waitedMs: number, attributes: Attributes): Span {
    const { tracer, producer, parent } = this;
    const startTime = Date.now() - waitedMs;
    return tracer.startSpan(
      "sluice.wait",
      { startTime, attributes, links: linksTo(producer) },
      parent,
    );
  }
}

export function createTraces(tracer: Tracer): Traces {
  return {
    begin: (producer) => new Wait(tracer, producer),
    producer() {
      const found = trace.getSpanContext(context.active());
      if (found === undefined || !isSpanContextValid(found)) return undefined;
      const { traceId, spanId, traceFlags } = found;
      return `00-${traceId}-${spanId}-${traceFlags.toString(16).padStart(2, "0")}`;
    },
  };
}

function linksTo(producer: string | undefined): Link[] {
  if (producer === undefined) return [];
  const [, traceId, spanId, flags] = TRACEPARENT.exec(producer) ?? [];
  if (traceId === undefined || spanId === undefined) return [];
  const found = { traceId, spanId, traceFlags: Number.parseInt(flags!, 16), isRemote: true };
  return isSpanContextValid(found) ? [{ context: found }] : [];
}
