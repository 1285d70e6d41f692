import type { Priority } from "../input/options.ts";
import type { CountedMetric, LabelValues } from "./metrics.ts";

/**
 * The result of a draw.
 *
 * - `granted`: a call used the slot.
 * - `late`: the slot's time passed before its call could start. The call drew another slot.
 * - `returned`: no call needed the slot any more. It went back to other replicas.
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
  /** Returns the same series for the same labels. Keep it on a hot path. */
  series<Of extends CountedMetric>(metric: Of, ...labels: LabelValues<Of>): Series;
}

/** The facts about a finished wait. */
interface WaitFacts {
  readonly bucket: string;
  readonly priority: Priority;
  readonly waitedMs: number;
  /** The limit that delayed the call: `"100/s"`. Undefined if nothing delayed it. */
  readonly limitedBy: string | undefined;
}

/** Receives the end of one wait, which began when this trace was created. */
export interface WaitTrace {
  ended(wait: WaitFacts): void;
  refused(bucket: string, waitedMs: number, error: Error): void;
}

/** Traces calls and jobs from their origin. */
export interface Traces {
  /** Called when a call begins to wait. A job's wait is linked to its producer. Undefined if the wait is not traced. */
  begin(producer: string | undefined): WaitTrace | undefined;
  /**
   * The current trace context, in the form that a job carries: at most 55 characters. Undefined if nothing is traced.
   */
  producer(): string | undefined;
}

/** The observers of a sluice. There are none at first, and then nothing is counted or timed. */
export interface Observing {
  observer: Observer | undefined;
  /** If several tracers are added, only the first is used. */
  traces: Traces | undefined;
  /** Called once the sluice is closed, after the last activity. */
  readonly whenClosed: (() => void)[];
}

/** Adds an observer. */
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
 * Caches the result of `open` for the current observer, and calls it again for another one. Undefined without an
 * observer.
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
 * The label for an error: its code, or else the name of its class, because messages are unbounded. `""` without an
 * error.
 */
export function errorTypeOf(error: unknown): string {
  if (error === undefined) return "";
  const { code, name } = error as { readonly code?: unknown; readonly name?: unknown };
  const type = [code, name].find((each) => typeof each === "string" && each !== "");
  return typeof type === "string" ? type : "_OTHER";
}
