import type { Cost } from "sluice";
import type { LlmBucket } from "sluice/llm";

/** How far estimates were off, of one unit. */
export interface EstimateErrors {
  readonly calls: number;
  /** What the calls were counted for. */
  readonly taken: number;
  /** The sum of what each was off by. */
  readonly off: number;
  /** The same, each as a part of what its call was counted for. */
  readonly parts: number;
}

export interface WatchedEstimates {
  /** The preset, which now is watched; for calls by `fetch` to a fake. */
  readonly options: Pick<LlmBucket, "limits" | "cost" | "settle">;
  /** By unit, of all calls that were estimated and answered since the last reset. */
  readonly errors: () => Readonly<Record<string, EstimateErrors>>;
  readonly reset: () => void;
  /** How many answers came in all. */
  readonly answers: () => number;
}

const NONE: EstimateErrors = { calls: 0, taken: 0, off: 0, parts: 0 };

/** Compares what a preset draws for each call with what the fake says that it counted. */
export function watchEstimates({ limits, cost, settle }: LlmBucket): WatchedEstimates {
  let errors: Record<string, EstimateErrors> = {};
  let answers = 0;

  /** Calls that were estimated since the last reset. */
  let estimated = new WeakSet<object>();

  function note(drawn: Cost | undefined, counted: Readonly<Record<string, number>>): void {
    if (typeof drawn !== "object") return;
    for (const [unit, amount] of Object.entries(counted)) {
      if (unit === "calls" || amount === 0) continue;
      const { calls, taken, off, parts } = errors[unit] ?? NONE;
      const own = Math.abs((drawn[unit] ?? 0) - amount);
      errors[unit] = {
        calls: calls + 1,
        taken: taken + amount,
        off: off + own,
        parts: parts + own / amount,
      };
    }
  }

  return {
    options: {
      limits,
      cost(sent) {
        estimated.add(sent.args);
        return cost(sent);
      },
      settle(result, answered) {
        answers += 1;
        const counted = (result as Response).headers.get("x-counted");
        if (counted !== null && estimated.has(answered.args))
          note(answered.cost, JSON.parse(counted) as Record<string, number>);
        return settle(result, answered);
      },
    },
    errors: () => errors,
    reset() {
      errors = {};
      estimated = new WeakSet();
    },
    answers: () => answers,
  };
}
