/** Preloaded by the demo's workers. Reports to the demo for how long the process was blocked. */
import process from "node:process";
import { createStandstills } from "./standstills.ts";

const RING_EVERY_MS = 2;
const REPORT_EVERY_MS = 50;

export interface StandstillReport {
  /** The longest time in the last second for which the process was blocked. */
  readonly longestMs: number;
}

const standstills = createStandstills(RING_EVERY_MS);
setInterval(standstills.ring, RING_EVERY_MS).unref();
setInterval(() => {
  const report: StandstillReport = { longestMs: standstills.longestOfLastSecondMs() };
  // Without a callback, a failed report would be an uncaught error and end the process. Reports fail once the demo
  // has ended.
  if (process.connected) process.send?.(report, undefined, undefined, () => undefined);
}, REPORT_EVERY_MS).unref();
