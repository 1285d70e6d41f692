import * as z from "zod";
import { withForever } from "../../../core/describe.ts";
import { InvalidOptionError } from "../../../core/errors.ts";
import { LONGEST_MS, readOptions } from "../../../core/input/options.ts";
import { formatLimit } from "../../../core/limits/registry.ts";
import type { Limit } from "../../../core/limits/rule.ts";
import type { RateInput } from "../../../core/limits/rate.ts";
import { compileOver, formatPolicy, type PolicyOptions } from "../../../core/policy/policy.ts";
import type { InsightStore } from "../../../core/stores/insight/store.ts";
import type { BucketState, InForce, LimitState } from "../bucket-state.ts";
import { capOf, countWaiting } from "./status.ts";

/** A change as `configure` and `pause` would make it. */
export interface PreviewOptions<
  Rate extends RateInput = RateInput,
  KeyRate extends RateInput = RateInput,
> extends PolicyOptions<Rate, KeyRate> {
  /** For how long the bucket would be paused from now on, in ms; Infinity without an end, 0 if it were resumed. Defaults to as it is. */
  readonly pausedForMs?: number | undefined;
}

/** A bucket as it is, or would be. */
export interface BucketOutlook {
  /** `"100/s"`. */
  readonly policy: string;
  /** What the rates that all calls share allow together, in calls of cost 1 a second. Undefined if there is none. */
  readonly capPerSecond: number | undefined;
  /** Ms until a pause ends: `0` if there is none; Infinity if it has no end, which JSON says as `"forever"`. */
  readonly pausedForMs: number;
  /** How many callers wait, of all processes. */
  readonly waiting: number;
  /** Ms until all of them have started, if no more come: by shared rates alone, `0` if none waits. Infinity while a pause has no end. */
  readonly goneInMs: number;
}

/** What a change of a bucket would do. */
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

/** The state of a bucket after a change. What has been used of a limit stays used where its kind stays. */
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

/** A limit in place of the one before; what that one had used, this one has if it counts the same in the same way. */
function limitUnder(
  { kind, unit, capacity, count, periodUs, ...others }: Limit,
  from: {
    readonly before: Limit | undefined;
    readonly was: LimitState | undefined;
    readonly state: Pick<BucketState, "pausedForMs" | "coolingForMs">;
  },
): LimitState {
  const isKept = from.before?.kind === kind && from.before.unit === unit;
  const { level, capacity: most, nextFreeMs = 0 } = (isKept && from.was) || UNUSED;
  const used = Math.min(capacity, Math.ceil((level * capacity) / most));
  const { pausedForMs, coolingForMs } = from.state;
  // What was closed says nothing of the limit itself.
  const isHidden = nextFreeMs <= Math.max(pausedForMs, coolingForMs);
  const stepMs = Math.ceil(periodUs / (count * 1_000));
  const waitMs = isHidden || from.before?.periodUs !== periodUs ? stepMs : nextFreeMs;
  return {
    name: formatLimit({ kind, unit, capacity, count, periodUs, ...others }),
    unit,
    scope: "bucket",
    keyLevel: undefined,
    capacity,
    level: used,
    remaining: capacity - used,
    nextFreeMs: used < capacity ? 0 : Math.min(waitMs, Math.ceil(periodUs / 1_000)),
  };
}

/** A bucket as it is, and as it would be. */
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
  const goneInMs = fromMs === Infinity ? Infinity : Math.round(fromMs + rateMs);
  return withForever({
    policy: formatPolicy(policy),
    capPerSecond,
    pausedForMs,
    waiting,
    goneInMs,
  });
}
