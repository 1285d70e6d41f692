/** Figures that several scenarios measure, and the load that they start with. */
import type { Figure } from "../figure.ts";
import type { Rate } from "../limiters/contract.ts";
import type { Scenario, Stage } from "../stage.ts";

const CALLERS = 10;

/** Four replicas that together have more calls than a rate of 100/s allows. */
export const FOUR_AT_100 = {
  replicas: 4,
  plan: () => ({ rate: { calls: 100, seconds: 1 } }),
} as const satisfies Pick<Scenario, "replicas" | "plan">;

/** Keeps callers busy, and resolves once the limiter has used its rate for a while. */
export async function startLoad(
  { loop, pause }: Stage,
  { key, forMs = 2_000 }: { readonly key?: string; readonly forMs?: number } = {},
): Promise<void> {
  loop({ callers: CALLERS, ...(key === undefined ? {} : { key }) });
  await pause(forMs);
}

/** Measures for some time, and returns the period. */
export async function measureFor({ pause, log }: Stage, ms: number): Promise<Period> {
  const fromMs = log.nowMs();
  await pause(ms);
  return { fromMs, toMs: log.nowMs() };
}

type Period = Parameters<Stage["log"]["accepted"]>[0];

/** Returns the calls that the downstream accepted in a period, divided by those that a rate allows. */
export function shareOf(
  { log }: Stage,
  { calls, seconds }: Rate,
  period: Period,
  of?: Parameters<Stage["log"]["accepted"]>[1],
): number {
  const allowed = (calls * (period.toMs - period.fromMs)) / (seconds * 1_000);
  return log.accepted(period, of) / allowed;
}

/**
 * The most calls in any second, divided by the rate. Sluice grants exactly the rate, but the network and timers move
 * calls by some ms. One call more may therefore reach the downstream within a second.
 */
export function worstSecond(
  { log, plan }: Stage,
  {
    figure = "calls in the worst second, of the rate",
    atMost = 1.01,
    rate = plan.rate,
    period,
    digits = 2,
  }: {
    readonly figure?: string;
    readonly atMost?: number;
    readonly rate?: Rate;
    readonly period?: Partial<Period>;
    readonly digits?: number;
  } = {},
): Figure {
  const value = log.worstSecond(period) / rate.calls;
  return { figure, bound: { atMost }, value, digits };
}

/** The seconds until a limiter uses 90 % of its rate again. */
export function recovery({ log, plan }: Stage, fromMs: number, atMost = 5): Figure {
  return {
    figure: "seconds until 90 % of the rate is used again",
    bound: { atMost },
    value: log.recoveredAfter(fromMs, plan.rate.calls * 0.9),
    digits: 1,
  };
}
