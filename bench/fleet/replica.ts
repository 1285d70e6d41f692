import { setTimeout as pause } from "node:timers/promises";
import type { Driver } from "../limiters/contender.ts";
import { loadContender } from "../limiters/contenders.ts";
import type { FromReplica, ToReplica } from "./fleet.ts";
import { createMachineClock } from "./machine-clock.ts";

/** The longest time for which the replica waits for a limiter to close. */
const CLOSE_LIMIT_MS = 3_000;

/**
 * The current run of this process. It reports its arrivals only after the run, so that reporting does not affect the
 * measurement.
 */
let running: { readonly driver: Driver; readonly log: ArrivalLog } | undefined;
/** The CPU usage of the process when counting began. */
let usedBefore = process.cpuUsage();

async function obey(message: ToReplica): Promise<void> {
  if (message.kind === "connect") {
    const { setup } = message;
    try {
      const contender = await loadContender(message.contender);
      running = { driver: await contender.connect(setup), log: createArrivalLog(setup.every) };
      answer({ kind: "connected" });
    } catch (error) {
      answer({ kind: "failed", reason: String(error) });
    }
  } else if (message.kind === "start") {
    running?.driver.start(running.log.add);
  } else if (message.kind === "count") {
    usedBefore = process.cpuUsage();
  } else if (running !== undefined) {
    const { driver, log } = running;
    const { user, system } = process.cpuUsage(usedBefore);
    running = undefined;
    driver.stop();
    const notes = driver.notes?.() ?? new Float64Array();
    const taken = { arrivalsMs: log.atMs(), notes, cpuUs: user + system };
    await Promise.race([driver.close(), pause(CLOSE_LIMIT_MS)]);
    answer({ kind: "stopped", taken });
  }
}

function answer(message: FromReplica): void {
  process.send?.(message);
}

process.on("message", (message) => void obey(message as ToReplica));
process.on("disconnect", () => process.exit());
// Ignores rejections between runs: a limiter that is closed while it works leaves pending commands, which then fail.
process.on("unhandledRejection", (error) => {
  if (running === undefined) return;
  console.error(error);
  process.exit(1);
});
answer({ kind: "ready" });

/** The arrivals of one replica in one run. Adding one arrival takes at most a clock reading and a write to memory. */
export interface ArrivalLog {
  readonly add: () => void;
  /** Returns the times of the arrivals in order, on the machine's clock. */
  readonly atMs: () => Float64Array;
}

export function createArrivalLog(every: number): ArrivalLog {
  const nowMs = createMachineClock();
  let times = new Float64Array(1 << 16);
  let size = 0;
  let left = every;

  return {
    add() {
      left -= 1;
      if (left > 0) return;
      left = every;
      if (size === times.length) {
        const larger = new Float64Array(times.length * 2);
        larger.set(times);
        times = larger;
      }
      times[size] = nowMs();
      size += 1;
    },
    atMs: () => times.slice(0, size),
  };
}
