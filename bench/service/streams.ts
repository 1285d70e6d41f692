/**
 * Opens many event streams at once, and measures the delay of each event, directly from the upstream and through a
 * forward.
 */
import { Agent, get } from "node:http";
import { setTimeout as pause } from "node:timers/promises";
import { createMachineClock } from "../fleet/machine-clock.ts";

export const STREAMS = 1_000;
/** The interval of the events in each stream of the upstream. */
export const EVERY_MS = 100;

/** The delays of events. */
export interface Delays {
  readonly events: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
}

/** Opens all streams, and then measures their events for this many seconds. */
export async function measureStreams(url: string, seconds: number): Promise<Delays> {
  const agent = new Agent({ maxSockets: Infinity });
  const machineMs = createMachineClock();
  const delaysMs: number[] = [];
  let open = 0;
  let isMeasured = false;

  function read(events: string): void {
    if (!isMeasured) return;
    const nowMs = machineMs();
    for (const [, sentMs] of events.matchAll(/^data: (\S+)$/gm)) {
      delaysMs.push(nowMs - Number(sentMs));
    }
  }

  try {
    for (let each = 0; each < STREAMS; each++) {
      const asking = get(url, { agent }, (response) => {
        open += 1;
        response
          .setEncoding("utf8")
          .on("data", read)
          .on("error", () => {});
      });
      asking.on("error", () => {});
      // Opens the streams a little apart, so that their events are spread over time.
      if (each % 10 === 0) await pause(1);
    }
    while (open < STREAMS) await pause(10);
    await pause(1_000);
    isMeasured = true;
    await pause(seconds * 1_000);
    isMeasured = false;
  } finally {
    agent.destroy();
  }
  delaysMs.sort((a, b) => a - b);
  const at = (part: number): number => delaysMs[Math.floor(delaysMs.length * part)] ?? NaN;
  return { events: delaysMs.length, p50Ms: at(0.5), p99Ms: at(0.99) };
}
