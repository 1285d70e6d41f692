import type { Tally } from "./tally.ts";

/** How much of the cap was used, counted only while work waited. */
export interface ShareMeter {
  /** Notes whether work waits just now. */
  look(isWorkWaiting: boolean): void;
  /** 1 when each call of the cap was made; undefined when work waited for less than a second. */
  share(rate: number): number | undefined;
}

const LEAST_MS = 1_000;

export function createShareMeter(tally: Tally): ShareMeter {
  const stretches: { readonly fromMs: number; toMs: number }[] = [];
  let wasWaiting = false;

  return {
    look(isWorkWaiting) {
      const { nowMs, delivered } = tally;
      // Until the first call has come, the workers still fetch their first jobs.
      const isWaiting = isWorkWaiting && delivered > 0;
      if (isWaiting && wasWaiting) stretches.at(-1)!.toMs = nowMs;
      if (isWaiting && !wasWaiting) stretches.push({ fromMs: nowMs, toMs: nowMs });
      wasWaiting = isWaiting;
    },
    share(rate) {
      let waitedMs = 0;
      let calls = 0;
      for (const { fromMs, toMs } of stretches) {
        waitedMs += toMs - fromMs;
        calls += tally.acceptedBetween(fromMs, toMs);
      }
      return waitedMs < LEAST_MS ? undefined : (calls * 1_000) / (waitedMs * rate);
    },
  };
}
