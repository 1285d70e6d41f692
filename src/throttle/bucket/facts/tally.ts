import {
  whenObserved,
  type CountSlots,
  type Observer,
  type Observing,
  type Series,
  type SlotOutcome,
  type Traces,
} from "../../../core/events/observer.ts";
import type { SlowCause } from "../../../core/answer.ts";
import type { Priority } from "../../../core/input/options.ts";
import { formatLimit } from "../../../core/limits/registry.ts";
import type { CrossedBudget } from "../../../core/store.ts";
import type { LocalActivity } from "../../bucket.ts";
import { nameBinding } from "../../try/decision.ts";
import type { Waits } from "../../waiting/dispatch.ts";

/** Counts a bucket's activity in this process, for reports to the store and for metrics. */
export interface Tally {
  /** Counts started calls that did not wait. */
  readonly add: (calls: number) => void;
  /** Counts a started call that waited. */
  readonly waited: (waitedMs: number, priority?: Priority) => void;
  /** Counts other slots and refusals by their outcome. Only metrics use these counts. */
  readonly count: CountSlots;
  /** Returns the tracer of waits. Undefined if tracing is off. */
  readonly traces: () => Traces | undefined;
  /** Counts a refusal by the downstream that causes a cooldown or a rate cut. */
  readonly cooled: () => void;
  /** Counts calls that started at a member of a pool. */
  readonly memberUsed: (member: string, calls: number) => void;
  /** Counts that a member of a pool takes no calls for a time, or fewer. */
  readonly memberStopped: (member: string, cause: SlowCause) => void;
  /** Counts the parts of budgets that calls of this process have reached. */
  readonly budgetReached: (crossed: readonly CrossedBudget[]) => void;
  /** Marks the bucket as active, because a caller waits. */
  readonly touch: () => void;
  /** Returns the counts since the last call of this method. After it, the next activity calls `onActivity` again. */
  take(): Pick<LocalActivity, "started" | "refused">;
}

interface TallyParts {
  readonly name: string;
  /** Called at the first activity of the process, and at the first activity after each `take`. */
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
    memberUsed: (member, calls) => observed()?.usedOf(member).add(calls),
    memberStopped: (member, cause) => observed()?.memberStopped(member, cause),
    budgetReached(crossed) {
      for (const { limit, part } of crossed) observed()?.budgetReached(formatLimit(limit), part);
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

/** The metrics of one bucket. Each series is looked up once, because every draw adds to it. */
class BucketSeries {
  readonly slots: Readonly<Record<SlotOutcome, Series>>;
  readonly #bucket: string;
  readonly #observer: Observer;
  readonly #waits: Partial<Record<Priority, Series>> = {};
  readonly #used: Map<string, Series> = new Map();

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

  usedOf(member: string): Series {
    const known = this.#used.get(member);
    if (known !== undefined) return known;
    const used = this.#observer.series("sluice_pool_calls_total", this.#bucket, member);
    this.#used.set(member, used);
    return used;
  }

  memberStopped(member: string, cause: SlowCause): void {
    this.#observer.series("sluice_pool_stops_total", this.#bucket, member, cause).add(1);
  }

  budgetReached(budget: string, part: number): void {
    const observer = this.#observer;
    observer.series("sluice_budget_warnings_total", this.#bucket, budget, String(part)).add(1);
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

/** Returns the activity that this process reports to the store about a bucket. */
export function activityOf(
  counted: Pick<LocalActivity, "started" | "refused">,
  { byRank, sinceMs, most }: Waits,
): LocalActivity {
  const oldestMs = sinceMs === Infinity ? 0 : Math.max(0, Math.round(performance.now() - sinceMs));
  const limitedBy = most && nameBinding(most.bindsAt, most.callTerms);
  return { ...counted, waiting: byRank, oldestMs, limitedBy };
}
