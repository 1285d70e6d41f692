/** Preloaded by the demo's workers: reports to the demo how long this process stands still. */
import process from "node:process";
import { createStandstills } from "./standstills.ts";

const RING_EVERY_MS = 2;
const REPORT_EVERY_MS = 50;

export interface StandstillReport {
  /** The longest standstill in the last second. */
  readonly longestMs: number;
}

const standstills = createStandstills(RING_EVERY_MS);
setInterval(standstills.ring, RING_EVERY_MS).unref();
setInterval(() => {
  const report: StandstillReport = { longestMs: standstills.longestOfLastSecondMs() };
  // If the demo is gone, the report fails. Without a callback that would be an uncaught error, and end in `process.exit`.
  if (process.connected) process.send?.(report, undefined, undefined, () => undefined);
}, REPORT_EVERY_MS).unref();
