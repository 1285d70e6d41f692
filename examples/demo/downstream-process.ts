/**
 * The downstream of the demo, in a process of its own: a judge that is held up
 * by the work of others would see calls later than they came.
 */
import process from "node:process";
import { startFakeDownstream } from "sluice/testing";
import { WARM_UP_PATH, type FromDownstream } from "./downstream.ts";
import { createStandstills } from "./standstills.ts";

const REPORT_EVERY_MS = 100;
const RING_EVERY_MS = 2;

const standstills = createStandstills(RING_EVERY_MS);
setInterval(standstills.ring, RING_EVERY_MS).unref();

const downstream = await startFakeDownstream({
  maxPerSecond: Number(process.argv[2]),
  // Clearing them up would hold the judge up.
  keepBodies: false,
  seenLateMs: standstills.longestOfLastSecondMs,
});
let seen = 0;

function tell(message: FromDownstream): void {
  process.send?.(message);
}

function report(isLast: boolean): void {
  const arrivals = downstream.arrivals.slice(seen);
  seen += arrivals.length;
  const calls = arrivals
    .filter(({ path }) => path !== WARM_UP_PATH)
    .map(({ atMs, headers, status }) => ({
      atMs,
      delivery: String(headers["x-github-delivery"]),
      worker: String(headers["user-agent"]),
      status,
    }));
  const stalledMs = standstills.longestOfLastSecondMs();
  tell({ kind: "report", nowMs: performance.now(), calls, stalledMs, isLast });
}

const timer = setInterval(() => report(false), REPORT_EVERY_MS);
process.once("message", () => {
  clearInterval(timer);
  report(true);
});
tell({ kind: "listening", url: downstream.url });
