/**
 * Creates a span `sluice.wait` for each wait that a limit caused. The span is part of the caller's
 * trace, or linked to the producer of the job. If neither is sampled, no span is created, because a
 * span would cost as much as the draw.
 */
import {
  context,
  isSpanContextValid,
  SpanStatusCode,
  trace,
  TraceFlags,
  type Attributes,
  type Context,
  type Link,
  type Span,
  type SpanContext,
  type Tracer,
  type TracerProvider,
} from "@opentelemetry/api";
import type { Traces, WaitTrace } from "../../../core/events/observer.ts";
import { SCOPE } from "./instruments.ts";

/** A traceparent in the format of W3C Trace Context. */
const TRACEPARENT = /^00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$/;
/** The shortest wait, in ms, that gets a span. No limit causes a shorter wait. */
const LEAST_MS = 1;

/**
 * The trace of one wait. A class with prototype methods saves memory, because each waiting call
 * creates one.
 */
class Wait implements WaitTrace {
  readonly tracer: Tracer;
  readonly producer: string | undefined;
  readonly parent: Context;

  constructor(tracer: Tracer, parent: Context, producer: string | undefined) {
    this.tracer = tracer;
    this.parent = parent;
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

/**
 * Creates traces with the application's tracer provider, even if the application sets the provider
 * later.
 */
export function createTraces(provider: TracerProvider): Traces {
  const tracer = provider.getTracer(SCOPE);
  const isSet = watchProvider(provider);
  return {
    begin(producer) {
      if (!isSet()) return undefined;
      const parent = context.active();
      if (producer === undefined && sampledIn(parent) === undefined) return undefined;
      return new Wait(tracer, parent, producer);
    },
    producer() {
      const found = sampledIn(context.active());
      if (found === undefined || !isSpanContextValid(found)) return undefined;
      const { traceId, spanId, traceFlags } = found;
      return `00-${traceId}-${spanId}-${traceFlags.toString(16).padStart(2, "0")}`;
    },
  };
}

/**
 * Returns a function that checks whether spans can be recorded. It returns false while the API's
 * proxy provider has no provider of the application behind it.
 */
function watchProvider(provider: TracerProvider): () => boolean {
  const standIn = provider as { readonly getDelegateTracer?: (name: string) => Tracer | undefined };
  let isSet = standIn.getDelegateTracer === undefined;
  return () => isSet || (isSet = standIn.getDelegateTracer?.(SCOPE) !== undefined);
}

/** Returns the current span if it is sampled. */
function sampledIn(parent: Context): SpanContext | undefined {
  const found = trace.getSpanContext(parent);
  if (found === undefined) return undefined;
  return (found.traceFlags & TraceFlags.SAMPLED) === 0 ? undefined : found;
}

function linksTo(producer: string | undefined): Link[] {
  if (producer === undefined) return [];
  const [, traceId, spanId, flags] = TRACEPARENT.exec(producer) ?? [];
  if (traceId === undefined || spanId === undefined) return [];
  const found = { traceId, spanId, traceFlags: Number.parseInt(flags!, 16), isRemote: true };
  return isSpanContextValid(found) ? [{ context: found }] : [];
}
