import * as z from "zod";
import { withForever } from "../../../core/describe.ts";
import { InvalidOptionError } from "../../../core/errors.ts";
import { LONGEST_MS, readOptions } from "../../../core/input/options.ts";
import { unitsIn } from "../../../core/limits/budget.ts";
import { formatLimit } from "../../../core/limits/registry.ts";
import type { Limit } from "../../../core/limits/rule.ts";
import type { RateInput } from "../../../core/limits/rate.ts";
import { compileOver, formatPolicy, type PolicyOptions } from "../../../core/policy/policy.ts";
import type { InsightStore } from "../../../core/stores/insight/store.ts";
import type { BucketState, InForce, LimitState } from "../bucket-state.ts";
import { capOf, countWaiting } from "./status.ts";

/** A change that `configure` or `pause` could make. */
export interface PreviewOptions<
  Rate extends RateInput = RateInput,
  KeyRate extends RateInput = RateInput,
> extends PolicyOptions<Rate, KeyRate> {
  /**
   * The length of a pause from now, in ms. Infinity means a pause without an end, and 0 means `resume`. By default,
   * pauses stay unchanged.
   */
  readonly pausedForMs?: number | undefined;
}

/** The expected state of a bucket before or after a change. */
export interface BucketOutlook {
  /** The policy as text: `"100/s"`. */
  readonly policy: string;
  /** The most calls of cost 1 per second under the shared rates. Undefined without a shared rate. */
  readonly capPerSecond: number | undefined;
  /**
   * Ms until a pause ends. `0` without a pause. Infinity for a pause without an end, written as `"forever"` in JSON.
   */
  readonly pausedForMs: number;
  /** The number of waiting callers of all processes. */
  readonly waiting: number;
  /**
   * Ms until all waiting callers have started. Considers only shared rates and assumes no new callers. `0` if no caller
   * waits, Infinity while a pause has no end.
   */
  readonly emptyInMs: number;
  /** @deprecated Use `emptyInMs`, which has the same value. */
  readonly goneInMs: number;
}

/** The expected state of a bucket now, and after a change. */
export interface BucketPreview {
  readonly now: BucketOutlook;
  readonly after: BucketOutlook;
}

const A_PAUSE = { error: "give ms from 0, or Infinity for a pause without an end" };
const PAUSED = z
  .union(
    [
      z.number(A_PAUSE).int(A_PAUSE).min(0, A_PAUSE).max(LONGEST_MS, A_PAUSE),
      z.literal(Infinity, A_PAUSE),
    ],
    A_PAUSE,
  )
  .optional();
const PREVIEW = z.looseObject({ pausedForMs: PAUSED });

/**
 * Returns the state that a bucket would have after a change. A limit keeps its usage if its kind and unit stay the
 * same.
 */
export function suppose(where: string, inForce: InForce, given: unknown): InForce {
  const { pausedForMs, ...policyGiven } = readOptions(where, PREVIEW, given) as PreviewOptions;
  const isPolicy = Object.values(policyGiven).some((value) => value !== undefined);
  if (!isPolicy && pausedForMs === undefined) {
    const remedy = 'give what would change, such as { rate: "20/s" } or { pausedForMs: 60_000 }';
    throw new InvalidOptionError({ where, option: "options", value: given, remedy });
  }
  const { policy: under, state } = inForce;
  const policy = isPolicy ? compileOver(where, policyGiven, under) : under;
  const paused = pausedForMs === undefined ? {} : { pausedForMs };
  const supposed = { ...state, ...paused, policy: formatPolicy(policy) };
  const limits = policy.limits.map((limit, index) =>
    limitUnder(limit, { before: under.limits[index], was: state.limits[index], state }),
  );
  return { ...inForce, policy, state: withForever({ ...supposed, limits }) };
}

const UNUSED = { level: 0, capacity: 1, nextFreeMs: 0 };

/**
 * Returns the state of a limit that replaces another one. The new limit keeps the usage if kind and unit stay the same.
 */
function limitUnder(
  limit: Limit,
  from: {
    readonly before: Limit | undefined;
    readonly was: LimitState | undefined;
    readonly state: Pick<BucketState, "pausedForMs" | "coolingForMs">;
  },
): LimitState {
  const { kind, unit, count, periodUs, budget } = limit;
  const isKept = from.before?.kind === kind && from.before.unit === unit;
  const { level, capacity: most, nextFreeMs = 0 } = (isKept && from.was) || UNUSED;
  const capacity = budget === undefined ? limit.capacity : unitsIn(limit, count);
  // A changed budget keeps what is spent. A changed rate keeps the used part.
  const kept = budget === undefined ? Math.ceil((level * capacity) / most) : level;
  const used = Math.min(capacity, kept);
  const { pausedForMs, coolingForMs } = from.state;
  // During a pause or cooldown, `nextFreeMs` does not show when the limit itself has room.
  const isHidden = nextFreeMs <= Math.max(pausedForMs, coolingForMs);
  const stepMs = Math.ceil(periodUs / (count * 1_000));
  const waitMs = isHidden || from.before?.periodUs !== periodUs ? stepMs : nextFreeMs;
  return {
    name: formatLimit(limit),
    unit,
    scope: "bucket",
    keyLevel: undefined,
    capacity,
    level: used,
    remaining: capacity - used,
    nextFreeMs: used < capacity ? 0 : Math.min(waitMs, Math.ceil(periodUs / 1_000)),
  };
}

export async function readPreview(
  name: string,
  insight: InsightStore,
  inForce: Promise<InForce>,
  change: unknown,
): Promise<BucketPreview> {
  const [now, waiting] = await Promise.all([inForce, countWaiting(name, insight)]);
  const after = suppose(`bucket("${name}").preview()`, now, change);
  return { now: outlookOf(now, waiting), after: outlookOf(after, waiting) };
}

function outlookOf({ policy, state }: InForce, waiting: number): BucketOutlook {
  const { pausedForMs, coolingForMs } = state;
  const capPerSecond = capOf(policy);
  const fromMs = waiting === 0 ? 0 : Math.max(pausedForMs, coolingForMs);
  const rateMs = capPerSecond === undefined ? 0 : (Math.max(0, waiting - 1) * 1_000) / capPerSecond;
  const emptyInMs = fromMs === Infinity ? Infinity : Math.round(fromMs + rateMs);
  return withForever({
    policy: formatPolicy(policy),
    capPerSecond,
    pausedForMs,
    waiting,
    emptyInMs,
    goneInMs: emptyInMs,
  });
}
