import process from "node:process";
import type { DemoArguments } from "./arguments.ts";
import { createLiveView } from "./live-view.ts";
import { createPaint } from "./paint.ts";
import { createPlainView } from "./plain-view.ts";
import { resultTable } from "./result-table.ts";
import { createShareMeter } from "./share-meter.ts";
import type { View } from "./snapshot.ts";
import { openStage, type Stage } from "./stage.ts";
import { count, judge, type Figures } from "./verdict.ts";
import { warmUp } from "./warm-up.ts";
import { watch } from "./watch.ts";

/**
 * Runs the demo until all is delivered, time is up or the signal comes.
 * Resolves with whether each promise was kept.
 */
export async function runDemo(given: DemoArguments, signal: AbortSignal): Promise<boolean> {
  await using stage = await openStage(given, print);
  await warmUp(stage, { rate: given.rate, signal });
  if (signal.aborted) {
    print("Stopped before it began.");
    return true;
  }
  print(`${count(given.jobs)} GitHub webhooks come five times faster than they may leave.\n`);

  const meter = createShareMeter(stage.tally);
  const view = openView(given);
  let enqueued = 0;
  try {
    enqueued = await watch({ given, stage, meter, view, signal });
  } finally {
    view.close();
  }
  const share = meter.share(given.rate);
  return report(given, await settle(stage, enqueued, share));
}

function openView(given: DemoArguments): View {
  const { stdout } = process;
  const canRedraw = stdout.isTTY && process.env["TERM"] !== "dumb";
  return canRedraw ? createLiveView(stdout, given) : createPlainView(print, given);
}

/** Ends the workers, so that nothing moves any more, and counts. */
async function settle(
  { workers, downstream, queue, tally }: Stage,
  jobs: number,
  share: number | undefined,
): Promise<Figures> {
  const crashedWorkers = workers.crashed;
  await workers.end();
  await downstream.lastReport();
  const { waiting, active, delayed, failed } = await queue.counts();
  const { delivered, twice, worstSecond, surelyInWorstSecond, refused, stalledMs } = tally;
  return {
    jobs,
    delivered,
    waiting: waiting + active + delayed,
    failed,
    twice,
    worstSecond,
    surelyInWorstSecond,
    refused,
    stalledMs,
    share,
    crashedWorkers,
  };
}

function report({ rate, workers }: DemoArguments, figures: Figures): boolean {
  const paint = createPaint(process.stdout);
  const rows = judge(rate, figures);
  const broken = rows.filter(({ isBroken }) => isBroken === true).map(({ name }) => name);
  print("");
  for (const line of resultTable(rows, paint)) print(line);
  if (figures.crashedWorkers > 0) {
    print(paint.bad(`${figures.crashedWorkers} of ${workers} workers crashed.`));
  }
  if (broken.length === 0) print(paint.good("Every promise was kept."));
  else print(paint.bad(`Broken: ${broken.join(", ")}.`));
  return broken.length === 0;
}

function print(line: string): void {
  process.stdout.write(`${line}\n`);
}
