import type { Scope } from "./scope.ts";

/** The earliest time at which a scope lets anything start. Twin of `opens_at_us` in `lua/lib/scope.lua`, as are those below. */
export function opensAtUs(scope: Scope, nowUs: number, stepUs: number): number {
  const { lastUs, coolUntilUs, pausedUntilUs, sinceUs, recoverUs, gapUs, gapUntilUs } = scope;
  const atUs = Math.max(nowUs, coolUntilUs);
  const factor = factorAt(scope, atUs);
  const cutGapUs = factor < 1_000 ? Math.ceil((stepUs * 1_000) / factor) : 0;
  // No gap outlasts what it is kept for: the limits themselves space calls after that.
  const afterCutUs = Math.min(lastUs + cutGapUs, sinceUs + recoverUs);
  const afterGapUs = atUs < gapUntilUs ? Math.min(lastUs + gapUs, gapUntilUs) : 0;
  return Math.max(atUs, pausedUntilUs, lastUs, afterCutUs, afterGapUs);
}

/** Whether calls keep a distance beyond that of their limits: the rate is cut, or spaced out. */
export function keepsGap(scope: Scope, atUs: number): boolean {
  return atUs < scope.gapUntilUs || factorAt(scope, atUs) < 1_000;
}

/** Per mille of the rate that is in force. */
export function factorAt({ factor, sinceUs, recoverUs }: Scope, atUs: number): number {
  if (factor >= 1_000 || atUs >= sinceUs + recoverUs) return 1_000;
  const grown = Math.floor((Math.max(0, atUs - sinceUs) * 1_000) / recoverUs);
  return Math.min(1_000, factor + grown);
}

/** When the whole rate is in force again; 0 if it has not been cut. */
export function wholeAtUs({ factor, sinceUs, recoverUs }: Scope): number {
  return factor >= 1_000 ? 0 : sinceUs + Math.ceil(((1_000 - factor) * recoverUs) / 1_000);
}
