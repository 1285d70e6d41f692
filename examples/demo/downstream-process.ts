/**
 * The demo's downstream. It has a process of its own: next to other work, it
 * would see calls later than they arrived.
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
  // Collecting them as garbage would delay the downstream.
  keepBodies: false,
  seenLateMs: standstills.longestOfLastSecondMs,
});
let seen = 0;

function send(message: FromDownstream): void {
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
  send({ kind: "report", nowMs: performance.now(), calls, stalledMs, isLast });
}

const timer = setInterval(() => report(false), REPORT_EVERY_MS);
process.once("message", () => {
  clearInterval(timer);
  report(true);
});
send({ kind: "listening", url: downstream.url });
