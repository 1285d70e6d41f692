import type { Priority } from "../input/options.ts";
import type { CountedMetric, LabelValues } from "./metrics.ts";

/**
 * What became of slots: a call left on it (`granted`); its moment passed before its call could leave, which was then
 * drawn for again (`late`); no call needed it any more, and it went back to other replicas (`returned`). `refused` counts
 * calls that got none.
 */
export type SlotOutcome = "granted" | "late" | "returned" | "refused";

export type CountSlots = (outcome: SlotOutcome, slots: number) => void;

/** One metric with one set of label values. */
export interface Series {
  /** Adds to a counter, or a duration in ms to a histogram. */
  add(value: number): void;
}

/** Counts what a sluice does in this process, as it happens. */
export interface Observer {
  /** The same series for the same labels; on a hot path, keep it. */
  series<Of extends CountedMetric>(metric: Of, ...labels: LabelValues<Of>): Series;
}

/** What is known of a wait that is over. */
interface WaitFacts {
  readonly bucket: string;
  readonly priority: Priority;
  readonly waitedMs: number;
  /** What held the call back: `"100/s"`; undefined if nothing did. */
  readonly limitedBy: string | undefined;
}

/** Hears how one wait ends, which began where this was made. */
export interface WaitTrace {
  ended(wait: WaitFacts): void;
  refused(bucket: string, waitedMs: number, error: Error): void;
}

/** Follows calls and jobs from where they come from. */
export interface Traces {
  /** A call begins to wait; that of a job is linked to its producer. Undefined if nobody follows the wait. */
  begin(producer: string | undefined): WaitTrace | undefined;
  /** What the code at hand is part of, as it travels with a job: at most 55 characters. Undefined if nobody follows it. */
  producer(): string | undefined;
}

/** Who hears what a sluice does: nobody at first, and then nothing is counted or timed. */
export interface Observing {
  observer: Observer | undefined;
  /** Of several who would follow calls or jobs, the first does. */
  traces: Traces | undefined;
  /** Called once the sluice is closed: nothing more will be heard. */
  readonly whenClosed: (() => void)[];
}

/** One more hears what a sluice does. */
export function hearToo(observing: Observing, added: Observer): void {
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

/** Caches what `open` makes of the observer, and calls it again for another observer. Undefined without an observer. */
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

/** The label of an error: a code if it has one, else the name of its class, since messages are unbounded. `""` for none. */
export function errorTypeOf(error: unknown): string {
  if (error === undefined) return "";
  const { code, name } = error as { readonly code?: unknown; readonly name?: unknown };
  const type = [code, name].find((each) => typeof each === "string" && each !== "");
  return typeof type === "string" ? type : "_OTHER";
}
