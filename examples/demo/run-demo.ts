import process from "node:process";
import { setTimeout as pause } from "node:timers/promises";
import type { DemoArguments } from "./arguments.ts";
import { WARM_UP_PATH } from "./downstream.ts";
import { githubEvents, produce } from "./producer.ts";
import { openStage, type Stage } from "./stage.ts";
import { createShareMeter, type ShareMeter } from "./tally.ts";
import { resultTable, count, judge, type Figures } from "./verdict.ts";
import { createLiveView } from "./view/live-view.ts";
import { createPlainView } from "./view/plain-view.ts";
import type { View } from "./view/snapshot.ts";
import { createPaint } from "./view/terminal.ts";

/**
 * Runs the demo until everything is delivered, time is up or the signal aborts.
 * Resolves with whether every promise was kept.
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

/** Ends the workers, then counts when nothing moves any more. */
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

const PER_WORKER = 50;
const COUNT_EVERY_MS = 50;
const SECOND_MS = 1_000;

/**
 * Sends webhooks that the downstream does not report, under the same cap: code that
 * runs for the first time takes some 20 ms longer, which at 100 calls a second
 * puts two calls into the wrong second.
 */
async function warmUp(
  { queue, downstream, workers }: Stage,
  { rate, signal }: { rate: number; signal: AbortSignal },
): Promise<void> {
  const url = `${downstream.url}${WARM_UP_PATH}`;
  const webhooks = githubEvents()
    .slice(0, Math.min(rate, PER_WORKER * workers.all.length))
    .map(({ payload }) => ({ url, payload }));
  await queue.enqueueMany(webhooks);

  for (let left = webhooks.length; left > 0 && !signal.aborted;) {
    if (workers.crashed > 0) throw new Error("A worker ended before the demo began.");
    await pause(COUNT_EVERY_MS);
    const { waiting, active, delayed } = await queue.counts();
    left = waiting + active + delayed;
  }
  // The downstream's cap counts all calls of the last second, so wait until that is over.
  await pause(SECOND_MS, undefined, { signal }).catch(() => undefined);
}

const LOOK_EVERY_MS = 250;

interface WatchOptions {
  readonly given: DemoArguments;
  readonly stage: Stage;
  readonly meter: ShareMeter;
  readonly view: View;
  readonly signal: AbortSignal;
}

/**
 * Enqueues webhooks and shows how they leave, until all are delivered, no worker
 * is left, time is up or the signal aborts. Resolves with the number enqueued.
 */
async function watch({ given, stage, meter, view, signal }: WatchOptions): Promise<number> {
  const { downstream, queue, tally, workers } = stage;
  const { jobs, rate, seconds } = given;
  const enough = new AbortController();
  const startMs = performance.now();
  let enqueued = 0;

  const producing = produce(queue, {
    url: `${downstream.url}/github`,
    jobs,
    rate,
    signal: enough.signal,
    onEnqueued: (count) => {
      enqueued += count;
    },
  });
  // The error is thrown below; this only prevents an unhandled rejection.
  producing.catch(() => enough.abort());

  function show(isLast: boolean): void {
    view.show({
      elapsedMs: performance.now() - startMs,
      isLast,
      jobs,
      delivered: tally.delivered,
      backlog: Math.max(0, enqueued - tally.delivered),
      callsInLastSecond: tally.callsInLastSecond,
      worstSecond: tally.worstSecond,
      refused: tally.refused,
      workers: workers.all,
      deliveredBy: (worker) => tally.deliveredBy(worker),
    });
  }

  /** Leaves out active jobs after a crash: a dead worker's jobs stay locked for a while and do not wait for the cap. */
  async function isWorkWaiting(): Promise<boolean> {
    const { waiting, active } = await queue.counts();
    return waiting + (workers.crashed === 0 ? active : 0) > workers.all.length;
  }

  function isOver(): boolean {
    const isTimeUp = performance.now() - startMs >= seconds * 1_000;
    const isAlone = workers.all.every(({ isRunning }) => !isRunning);
    return isTimeUp || isAlone || tally.delivered >= jobs;
  }

  while (!isOver() && !signal.aborted && !enough.signal.aborted) {
    meter.look(await isWorkWaiting());
    show(false);
    await pause(LOOK_EVERY_MS, undefined, { signal }).catch(() => undefined);
  }
  enough.abort();
  await producing;
  show(true);
  return enqueued;
}
