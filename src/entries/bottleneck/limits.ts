/**
 * The limits of a limiter as buckets: one with the leases and the reservoir, from which a queued job draws, and one with
 * the pace, from which the job then draws its start.
 */
import {
  concurrency,
  budget,
  leakyBucket,
  slidingLog,
  tokenBucket,
} from "../../core/policy/limit-makers.ts";
import type { Limit } from "../../core/limits/rule.ts";
import type { Sluice } from "../../sluice/create-sluice.ts";
import type { Bucket } from "../../throttle/bucket.ts";
import type { Cost } from "../../throttle/costs.ts";
import type { Slot } from "../../throttle/slot/slot.ts";
import type { Settings } from "./options.ts";

/**
 * Where settings come from: this limiter is the first with its id, it has joined others, or it has received a change of
 * another one.
 */
export type SettingsFrom = "new" | "joined" | "received";

/** What a job holds while it runs. */
export type Held = readonly Slot[];

const UNIT = "reservoir";
/** A budget cannot be 0. This is less than the weight of any job. */
const NO_JOBS = 0.000001;
const LEAST_LEASE_MS = 1_000;

export class Limits {
  readonly #sluice: Sluice;
  readonly #name: string;
  #settings: Settings;
  /** Jobs that `incrementReservoir` added to a reservoir that refills by itself. */
  #extra = 0;
  /** The first value of a reservoir that does not refill by itself. */
  #amount: number | undefined;
  /** The number of leases of a heavy job that still waits for others. */
  #gathered = 0;
  /** The latest request for such a lease. It settles when `#gathered` includes that lease. */
  #gathering: Promise<unknown> = Promise.resolve();
  #declared = new Map<string, readonly Limit[]>();

  constructor(sluice: Sluice, id: string, settings: Settings) {
    this.#sluice = sluice;
    this.#name = `bottleneck-${encodeURIComponent(id)}`;
    this.#settings = settings;
    // Options that can never work are refused now, and not with the first job.
    this.#jobs();
    this.#pace();
    if (refillOf(settings) !== undefined) this.#extra = extraAtStart(settings);
  }

  /** Takes what a job needs, if all of it is free now. */
  async tryTake(weight: number): Promise<Held | undefined> {
    const jobs = this.#jobs();
    if (jobs === undefined || weight === 0) return [];
    const held: Slot[] = [];
    const costs = this.#costs(weight);
    // Leases that are given back right away would count as running jobs for a moment.
    if (costs.length > 1 && (await jobs.peek()).limits[0]!.remaining < weight) return undefined;
    for (const cost of costs) {
      const { slot } = await jobs.tryDraw({ cost });
      if (slot === undefined) {
        await this.giveBackUnused(held);
        return undefined;
      }
      held.push(slot);
    }
    this.#useExtra(weight);
    return held;
  }

  /** Waits for what a job needs. Rejects when the signal is aborted. */
  async take(weight: number, signal: AbortSignal): Promise<Held> {
    const jobs = this.#jobs();
    if (jobs === undefined) return [];
    const costs = this.#costs(weight);
    const held: Slot[] = [];
    // Two jobs that each hold a part of the leases would wait for each other for ever.
    const isHeavy = costs.length > 1;
    const turn = isHeavy ? await this.#heavy().draw({ signal }) : undefined;
    try {
      for (const cost of costs) {
        if (!isHeavy || !(await this.#gatherFree(jobs, { cost, held }))) {
          held.push(await jobs.draw({ cost, signal }));
        }
        if (isHeavy) this.#gathered = held.length;
        signal.throwIfAborted();
      }
    } catch (error) {
      await this.giveBackUnused(held);
      throw error;
    } finally {
      if (isHeavy) this.#gathered = 0;
      turn?.release();
    }
    this.#useExtra(weight);
    return held;
  }

  /**
   * Adds a lease to `held` if one is free now. `draw()` alone does not show whether its request is in flight or waits, so
   * a reader could see a lease in Redis that `#gathered` does not include yet.
   */
  #gatherFree(
    jobs: Bucket,
    { cost, held }: { readonly cost: Cost | undefined; readonly held: Slot[] },
  ): Promise<boolean> {
    const trying = jobs.tryDraw({ cost }).then(({ slot }) => {
      if (slot === undefined) return false;
      held.push(slot);
      this.#gathered = held.length;
      return true;
    });
    this.#gathering = trying.catch(() => undefined);
    return trying;
  }

  /** Reads the limits of jobs, and how many of their leases a heavy job has gathered at that moment. */
  async #readJobs(jobs: Bucket) {
    for (;;) {
      await this.#gathering;
      const gathered = this.#gathered;
      const { limits } = await jobs.peek();
      await this.#gathering;
      if (this.#gathered === gathered) return { limits, gathered };
    }
  }

  /** Gives back what no job has used, also to the reservoir. */
  async giveBackUnused(held: Held): Promise<void> {
    giveBack(held);
    const last = held.at(-1);
    if (last !== undefined && this.#reservoir() !== undefined) await last.settle({ [UNIT]: 0 });
  }

  /** Waits until the next job may start. */
  async pace(signal: AbortSignal): Promise<void> {
    await this.#pace()?.draw({ signal });
  }

  /** True if a job of this weight could start now. */
  async isFree(weight: number): Promise<boolean> {
    const jobs = weight === 0 ? undefined : this.#jobs();
    const pace = this.#pace();
    if ((pace?.waiting ?? 0) > 0) return false;
    const [jobsState, paceState] = await Promise.all([jobs && this.#readJobs(jobs), pace?.peek()]);
    const fits = (jobsState?.limits ?? []).every(({ unit, remaining }) => {
      return weight <= remaining + (unit === UNIT ? this.#extra : jobsState!.gathered);
    });
    return fits && (paceState?.limits ?? []).every(({ remaining }) => remaining >= 1);
  }

  /** The settings as other limiters with this id need them. */
  sharedSettings(): Settings {
    if (!hasBudget(this.#settings)) return this.#settings;
    // All limiters declare a budget with the same amount. The value of the reservoir is its balance in Redis.
    return { ...this.#settings, reservoir: this.#amount ?? this.#settings.reservoir };
  }

  /** Applies settings that all limiters share. The process that changed them has stored the limits already. */
  async adopt(settings: Settings, from: SettingsFrom): Promise<void> {
    if (hasBudget(settings)) this.#amount = settings.reservoir!;
    this.#change(settings);
    if (from !== "received") await this.#store(from === "joined");
  }

  async reservoir(): Promise<number | null> {
    const jobs = this.#jobs();
    if (this.#reservoir() === undefined) return null;
    if (refillOf(this.#settings) === undefined) {
      const [balance] = await jobs!.budgets();
      return Math.floor(balance!.remaining);
    }
    const { limits } = await jobs!.peek();
    return Math.floor(limits.at(-1)!.remaining) + this.#extra;
  }

  /** Changes the reservoir, and returns the new value. */
  async addToReservoir(change: number): Promise<number | null> {
    const before = await this.reservoir();
    if (before === null || change === 0) return before;
    const jobs = this.#jobs()!;
    if (refillOf(this.#settings) !== undefined) {
      const taken = Math.min(this.#extra, Math.max(0, -change));
      this.#extra += change > 0 ? change : -taken;
      const cost = Math.min(-change - taken, before - taken);
      if (change < 0 && cost > 0) giveBack([await jobs.draw({ cost: { [UNIT]: cost } })]);
    } else if (change > 0) {
      // Waiting jobs may take what was granted before another request could read the balance.
      const grant = await jobs.grant({ [UNIT]: change }, { reason: "incrementReservoir" });
      return Math.floor(grant[0]!.remaining);
    } else {
      const balance = (await jobs.budgets())[0]!;
      await jobs.restore([{ ...balance, spent: balance.spent - change }]);
    }
    return before + change;
  }

  /** Applies changed settings, and stores the limits for all processes. */
  async update(settings: Settings): Promise<void> {
    this.#change(settings);
    await this.#store(true);
  }

  #change(settings: Settings): void {
    const [wasRefilling, isRefilling] = [this.#settings, settings].map(
      (each) => refillOf(each) !== undefined,
    );
    this.#settings = settings;
    if (!isRefilling || !wasRefilling) this.#extra = 0;
  }

  /** Stores the limits of the buckets. Unless `isChanged`, only those that differ from what the code declares. */
  async #store(isChanged: boolean): Promise<void> {
    for (const [name, limits] of [
      [this.#jobsName, this.#jobLimits()],
      [this.#name, this.#paceLimits()],
    ] as const) {
      if (limits.length === 0 || !this.#declared.has(name)) continue;
      const bucket = this.#bucket(name, limits)!;
      if (isChanged || (await bucket.peek()).policyFrom === "configured") {
        await bucket.configure({ limits });
      }
    }
  }

  #jobs(): Bucket | undefined {
    return this.#bucket(this.#jobsName, this.#jobLimits());
  }

  #pace(): Bucket | undefined {
    return this.#bucket(this.#name, this.#paceLimits());
  }

  #heavy(): Bucket {
    return this.#bucket(`${this.#name}-heavy`, [concurrency(1, { leaseMs: this.#leaseMs() })])!;
  }

  #leaseMs(): number {
    return Math.max(LEAST_LEASE_MS, this.#settings.clientTimeout);
  }

  /** Opens a bucket with the limits with which it was first needed. `update` changes them later. */
  #bucket(name: string, limits: readonly Limit[]): Bucket | undefined {
    if (limits.length === 0) return undefined;
    const declared = this.#declared.get(name) ?? limits;
    this.#declared.set(name, declared);
    return this.#sluice.bucket(name, { limits: declared, fair: false });
  }

  get #jobsName(): string {
    return `${this.#name}-jobs`;
  }

  #jobLimits(): readonly Limit[] {
    const { maxConcurrent } = this.#settings;
    const reservoir = this.#reservoir();
    return [
      ...(maxConcurrent === null ? [] : [concurrency(maxConcurrent, { leaseMs: this.#leaseMs() })]),
      ...(reservoir === undefined ? [] : [reservoir]),
    ];
  }

  #paceLimits(): readonly Limit[] {
    const { minTime } = this.#settings;
    if (minTime === 0) return [];
    // Fractions of a millisecond, as in `1000 / 30`, are kept as the time of 1,000 jobs.
    const rate = Number.isInteger(minTime)
      ? { calls: 1, per: `${minTime}ms` as const }
      : { calls: 1_000, per: `${Math.ceil(minTime * 1_000)}ms` as const };
    return [leakyBucket(rate)];
  }

  #reservoir(): Limit | undefined {
    const refill = refillOf(this.#settings);
    if (refill !== undefined) return refill;
    const { reservoir } = this.#settings;
    if (reservoir === null) return undefined;
    // Later values change the balance, not the amount, so that each is read and set in one step.
    this.#amount ??= Math.max(reservoir, NO_JOBS);
    const amount = this.#amount;
    return budget({ unit: UNIT, amount, per: "year", onSpent: "wait", carryOver: true });
  }

  /** The cost of each lease that a job of this weight needs. The last one also pays the reservoir. */
  #costs(weight: number): readonly ({ readonly [UNIT]: number } | undefined)[] {
    const isLimited = this.#reservoir() !== undefined;
    const leases = this.#settings.maxConcurrent === null ? 1 : weight;
    const paid = this.#extra >= weight ? 0 : weight;
    return Array.from({ length: leases }, (_, index) => {
      return isLimited && index === leases - 1 && paid > 0 ? { [UNIT]: paid } : undefined;
    });
  }

  #useExtra(weight: number): void {
    if (this.#extra >= weight) this.#extra -= weight;
  }
}

export function giveBack(held: Held): void {
  for (const slot of held) slot.release();
}

/** A reservoir that refills by itself. Undefined for one that only `incrementReservoir` fills, and without one. */
function refillOf(settings: Settings): Limit | undefined {
  const { reservoirRefreshInterval: everyMs, reservoirRefreshAmount: amount } = settings;
  if (everyMs !== null && amount !== null)
    return slidingLog(amount, `${everyMs}ms`, { unit: UNIT });
  const { reservoirIncreaseInterval: stepMs, reservoirIncreaseAmount: step } = settings;
  if (stepMs === null || step === null) return undefined;
  const capacity = Math.max(1, settings.reservoirIncreaseMaximum ?? settings.reservoir ?? step);
  return tokenBucket({ capacity, refill: { calls: step, per: `${stepMs}ms` }, unit: UNIT });
}

function hasBudget(settings: Settings): boolean {
  return settings.reservoir !== null && refillOf(settings) === undefined;
}

/** What the first filling has more than the later ones. */
function extraAtStart({ reservoir, reservoirRefreshAmount }: Settings): number {
  return Math.max(0, (reservoir ?? 0) - (reservoirRefreshAmount ?? Infinity));
}
