import type { Priority } from "../input/options.ts";
import type { CountedMetric, LabelValues } from "./metrics.ts";

/**
 * The result of a draw.
 *
 * - `granted`: a call used the slot.
 * - `late`: the slot's time was over before its call could start. The call drew another slot.
 * - `returned`: no call needed the slot any more. The bucket returned the slot to other replicas.
 * - `refused`: a call got no slot.
 */
export type SlotOutcome = "granted" | "late" | "returned" | "refused";

export type CountSlots = (outcome: SlotOutcome, slots: number) => void;

/** One metric with one set of label values. */
export interface Series {
  /** Adds to a counter, or a duration in ms to a histogram. */
  add(value: number): void;
}

/** Counts the activity of a sluice in this process. */
export interface Observer {
  /** Returns the series with these labels, the same object each time. Code that runs often should store the series. */
  series<Of extends CountedMetric>(metric: Of, ...labels: LabelValues<Of>): Series;
}

/** A finished wait of a call or job, as it is traced. */
interface WaitFacts {
  readonly bucket: string;
  readonly priority: Priority;
  readonly waitedMs: number;
  /** The limit that delayed the call: `"100/s"`. Undefined if nothing delayed it. */
  readonly limitedBy: string | undefined;
}

/** Records one wait. The wait began when this trace was created, and ends with one of these calls. */
export interface WaitTrace {
  ended(wait: WaitFacts): void;
  refused(bucket: string, waitedMs: number, error: Error): void;
}

/** Creates traces for the waits of calls and jobs. */
export interface Traces {
  /**
   * Begins the trace of a wait. For a job, the trace is linked to `producer`, the trace context in which the job was
   * enqueued. Returns undefined if the wait is not traced.
   */
  begin(producer: string | undefined): WaitTrace | undefined;
  /**
   * Returns the current trace context as text of at most 55 characters, which a job stores. Returns undefined if
   * nothing is traced.
   */
  producer(): string | undefined;
}

/** The observers of a sluice. Initially there are none, and nothing is counted or timed. */
export interface Observing {
  observer: Observer | undefined;
  /** Traces waits. If several tracers are added, only the first one is used. */
  traces: Traces | undefined;
  /** Functions that are called once the sluice is closed, after the last activity. */
  readonly whenClosed: (() => void)[];
}

/** Adds an observer. Each observer counts all activity. */
export function addObserver(observing: Observing, added: Observer): void {
  const { observer } = observing;
  observing.observer = observer === undefined ? added : both(observer, added);
}

function both(one: Observer, other: Observer): Observer {
  return {
    series(...labels) {
      const [first, second] = [one.series(...labels), other.series(...labels)];
      return {
        add(value) {
          first.add(value);
          second.add(value);
        },
      };
    },
  };
}

export function createObserving(): Observing {
  return { observer: undefined, traces: undefined, whenClosed: [] };
}

/**
 * Returns a function that caches the result of `open` for the current observer, and calls `open` again if the observer
 * changes. That function returns undefined without an observer.
 */
export function whenObserved<Opened>(
  observing: Observing | undefined,
  open: (observer: Observer) => Opened,
): () => Opened | undefined {
  if (observing === undefined) return () => undefined;
  let known: Observer | undefined;
  let opened: Opened | undefined;
  return () => {
    const { observer } = observing;
    if (observer !== known) {
      known = observer;
      opened = observer && open(observer);
    }
    return opened;
  };
}

/**
 * Returns the metric label for an error: its code, or else its class name. Messages are not used, because their number
 * is unbounded. Returns `""` if there is no error.
 */
export function errorTypeOf(error: unknown): string {
  if (error === undefined) return "";
  const { code, name } = error as { readonly code?: unknown; readonly name?: unknown };
  const type = [code, name].find((each) => typeof each === "string" && each !== "");
  return typeof type === "string" ? type : "_OTHER";
}
