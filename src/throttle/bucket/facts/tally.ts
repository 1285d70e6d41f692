import {
  whenObserved,
  type CountSlots,
  type Observer,
  type Observing,
  type Series,
  type SlotOutcome,
  type Traces,
} from "../../../core/events/observer.ts";
import type { Priority } from "../../../core/input/options.ts";
import type { LocalActivity } from "../../bucket.ts";
import { nameBinding } from "../../try/decision.ts";
import type { Waits } from "../../waiting/dispatch.ts";

/** Counts the activity of a bucket in this process, for reports and metrics. */
export interface Tally {
  /** Counts started calls that did not wait. */
  readonly add: (calls: number) => void;
  /** Counts a started call that waited. */
  readonly waited: (waitedMs: number, priority?: Priority) => void;
  /** Counts other slots and refusals, for metrics only. */
  readonly count: CountSlots;
  /** Returns the tracing of waits, if it is on. */
  readonly traces: () => Traces | undefined;
  /** Counts a refusal of the downstream that causes a cooldown or a cut of the rate. */
  readonly cooled: () => void;
  /** Reports activity: a caller waits. */
  readonly touch: () => void;
  /** Returns the counts since the last call of this method. The next event calls `onActivity` again. */
  take(): Pick<LocalActivity, "started" | "refused">;
}

interface TallyParts {
  readonly name: string;
  /** Called with the first call or caller after each `take`. */
  readonly onActivity?: (() => void) | undefined;
  readonly observing?: Observing | undefined;
}

export function createTally({ name, onActivity = () => {}, observing }: TallyParts): Tally {
  const observed = whenObserved(observing, (observer) => new BucketSeries(name, observer));
  let started = 0;
  let refused = 0;
  let hasActivity = false;

  function touch(): void {
    if (hasActivity) return;
    hasActivity = true;
    onActivity();
  }

  return {
    add(calls) {
      started += calls;
      if (!hasActivity) touch();
      observed()?.slots.granted.add(calls);
    },
    waited(waitedMs, priority = "normal") {
      started += 1;
      if (!hasActivity) touch();
      observed()?.waited(waitedMs, priority);
    },
    traces: () => observing?.traces,
    count: (outcome, slots) => observed()?.slots[outcome].add(slots),
    cooled() {
      refused += 1;
      touch();
    },
    touch,
    take() {
      const taken = { started, refused };
      started = 0;
      refused = 0;
      hasActivity = false;
      return taken;
    },
  };
}

/** The metrics of one bucket. Each is looked up once, since every draw counts here. */
class BucketSeries {
  readonly slots: Readonly<Record<SlotOutcome, Series>>;
  readonly #bucket: string;
  readonly #observer: Observer;
  readonly #waits: Partial<Record<Priority, Series>> = {};

  constructor(bucket: string, observer: Observer) {
    const slots = (outcome: SlotOutcome): Series =>
      observer.series("sluice_bucket_slots_total", bucket, outcome);
    this.slots = {
      granted: slots("granted"),
      late: slots("late"),
      returned: slots("returned"),
      refused: slots("refused"),
    };
    this.#bucket = bucket;
    this.#observer = observer;
  }

  waited(waitedMs: number, priority: Priority): void {
    const waits = (this.#waits[priority] ??= this.#observer.series(
      "sluice_bucket_wait_seconds",
      this.#bucket,
      priority,
    ));
    waits.add(waitedMs);
    this.slots.granted.add(1);
  }
}

/** Returns the activity that this process reports about a bucket. */
export function activityOf(
  counted: Pick<LocalActivity, "started" | "refused">,
  { byRank, sinceMs, most }: Waits,
): LocalActivity {
  const oldestMs = sinceMs === Infinity ? 0 : Math.max(0, Math.round(performance.now() - sinceMs));
  const limitedBy = most && nameBinding(most.bindsAt, most.callTerms);
  return { ...counted, waiting: byRank, oldestMs, limitedBy };
}
