import type { Priority } from "../input/options.ts";

/**
 * What became of slots: a call left on it (`granted`); its moment passed before its call could leave, which was then
 * drawn for again (`late`); no call needed it any more, and it went back to other replicas (`returned`). `refused` counts
 * calls that got none.
 */
export type SlotOutcome = "granted" | "late" | "returned" | "refused";

export const SLOT_OUTCOMES: readonly SlotOutcome[] = ["granted", "late", "returned", "refused"];

export type CountSlots = (outcome: SlotOutcome, slots: number) => void;

/** Hears what the calls of one bucket come to, in this process. */
export interface BucketObserver {
  /** A call that was in line leaves on its slot; it counts as granted. */
  waited(waitedMs: number, priority: Priority): void;
  readonly count: CountSlots;
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

/** Hears of jobs, by their queues. */
export interface JobsObserver {
  /** Jobs were stored, or could not be. */
  sent(
    queue: string,
    jobs: number,
    sending: { readonly ms: number; readonly error?: unknown },
  ): void;
  /** A handler starts. */
  consumed(queue: string): void;
  /** A handler has ended; with an error if its attempt has failed. */
  processed(queue: string, ms: number, error?: Error): void;
}

/** Hears what a sluice does in this process, as it happens. */
export interface Observer {
  bucket(name: string): BucketObserver;
  /** The store has answered, or failed. */
  asked(command: string, ms: number): void;
  /** A webhook was tried at an endpoint. */
  attempted(outcome: string, ms: number): void;
}

/** Who hears what a sluice does: nobody at first, and then nothing is counted or timed. */
export interface Observing {
  observer: Observer | undefined;
  /** Of several who would follow calls or jobs, the first does. */
  traces: Traces | undefined;
  jobs: JobsObserver | undefined;
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
    bucket(name) {
      const [first, second] = [one.bucket(name), other.bucket(name)];
      return {
        waited(...wait) {
          first.waited(...wait);
          second.waited(...wait);
        },
        count(...slots) {
          first.count(...slots);
          second.count(...slots);
        },
      };
    },
    asked(...request) {
      one.asked(...request);
      other.asked(...request);
    },
    attempted(...attempt) {
      one.attempted(...attempt);
      other.attempted(...attempt);
    },
  };
}

export function createObserving(): Observing {
  return { observer: undefined, traces: undefined, jobs: undefined, whenClosed: [] };
}

/** Returns who hears of a bucket at this moment. */
export function observerOf(
  observing: Observing | undefined,
  bucket: string,
): () => BucketObserver | undefined {
  if (observing === undefined) return () => undefined;
  let known: Observer | undefined;
  let own: BucketObserver | undefined;
  return () => {
    const { observer } = observing;
    if (observer !== known) {
      known = observer;
      own = observer?.bucket(bucket);
    }
    return own;
  };
}
