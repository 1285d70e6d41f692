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

/** Counts what a bucket does in this process, for whoever reports or observes it. */
export interface Tally {
  /** Calls that did not wait have started. */
  readonly add: (calls: number) => void;
  /** A call that waited starts. */
  readonly waited: (waitedMs: number, priority?: Priority) => void;
  /** Other slots, and refusals: these are only observed. */
  readonly count: CountSlots;
  /** Who follows calls while they wait. */
  readonly traces: () => Traces | undefined;
  /** The downstream refused a call, and a cooldown or a cut of the rate follows. */
  readonly cooled: () => void;
  /** A caller waits. */
  readonly touch: () => void;
  /** The calls that started, and the refusals, since it was last taken; what happens next is activity again. */
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

/** The series of one bucket, looked up once: every draw counts here. */
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

/** What this process tells of a bucket. */
export function activityOf(
  counted: Pick<LocalActivity, "started" | "refused">,
  { byRank, sinceMs, most }: Waits,
): LocalActivity {
  const oldestMs = sinceMs === Infinity ? 0 : Math.max(0, Math.round(performance.now() - sinceMs));
  const limitedBy = most && nameBinding(most.bindsAt, most.callTerms);
  return { ...counted, waiting: byRank, oldestMs, limitedBy };
}
