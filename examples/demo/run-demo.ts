import { once } from "node:events";
import process from "node:process";
import { setTimeout as pause } from "node:timers/promises";
import type { DemoArguments } from "./arguments.ts";
import { WARM_UP, type Customer } from "./customers.ts";
import { githubEvents, produce } from "./producer.ts";
import { openStage, type Stage } from "./stage.ts";
import { measureMachine } from "./machine.ts";
import { createShareMeter, type ShareMeter } from "./tally.ts";
import { resultTable, count, judge, type Figures } from "./verdict.ts";
import { createLiveView } from "./view/live-view.ts";
import { createPlainView } from "./view/plain-view.ts";
import type { View } from "./view/snapshot.ts";
import { createPaint } from "./view/terminal.ts";

/**
 * Runs the demo until everything is delivered, time is up or the signal aborts.
 * Resolves with true if no promise was broken.
 */
export async function runDemo(given: DemoArguments, signal: AbortSignal): Promise<boolean> {
  await using stage = await openStage(given, print);
  await warmUp(stage, { rate: given.rate, signal });
  if (signal.aborted) {
    print("Stopped before it began.");
    return true;
  }
  print(
    `${count(given.jobs)} signed GitHub webhooks arrive five times as fast as the cap allows.\n`,
  );

  const meter = createShareMeter(stage.tally);
  const machine = measureMachine();
  const view = openView(given);
  let sent = 0;
  try {
    sent = await watch({ given, stage, meter, view, signal });
  } finally {
    view.close();
  }
  const share = meter.share(given.rate);
  const load = machine.end();
  const wasKept = report(given, { ...(await settle(stage, sent, share)), machine: load });
  if (given.board && !signal.aborted) {
    print("The board stays until you press Ctrl-C.");
    await once(signal, "abort");
  }
  return wasKept;
}

function openView(given: DemoArguments): View {
  const { stdout } = process;
  const canRedraw = stdout.isTTY && process.env["TERM"] !== "dumb";
  return canRedraw ? createLiveView(stdout, given) : createPlainView(print, given);
}

/** Ends the workers, and then counts once no more calls arrive. */
async function settle(
  { workers, downstream, hooks, tally, customers }: Stage,
  jobs: number,
  share: number | undefined,
): Promise<Omit<Figures, "machine">> {
  const crashedWorkers = workers.crashed;
  await workers.end();
  await downstream.lastReport();
  const { waiting, active, delayed, failed } = await hooks.queue.counts();
  const {
    delivered,
    twice,
    worstSecond,
    surelyInWorstSecond,
    refused,
    stalledMs,
    workersStalledMs,
  } = tally;
  const paced = customers.flatMap(({ tenant, perSecond }) => {
    if (perSecond === undefined) return [];
    const { worstSecond: worst, surelyInWorstSecond: surely } = tally.paceOf(tenant);
    return [{ tenant, perSecond, worstSecond: worst, surelyInWorstSecond: surely }];
  });
  return {
    jobs,
    delivered,
    waiting: waiting + active + delayed,
    failed,
    twice,
    worstSecond,
    surelyInWorstSecond,
    refused,
    unverified: tally.unverified,
    failedOnce: tally.failed,
    cameAgain: tally.cameAgain,
    paced,
    stalledMs,
    workersStalledMs,
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
  const unsure = rows.filter(({ isInconclusive }) => isInconclusive).map(({ name }) => name);
  if (broken.length > 0) print(paint.bad(`Broken: ${broken.join(", ")}.`));
  else if (unsure.length === 0) print(paint.good("Every promise was kept."));
  if (unsure.length > 0) {
    print(
      `Not conclusive: ${unsure.join(", ")}. The machine was busy with other work; run the demo again when it is idle.`,
    );
  }
  return broken.length === 0;
}

function print(line: string): void {
  process.stdout.write(`${line}\n`);
}

const PER_WORKER = 50;
const WARM_UP_S = 2;
const COUNT_EVERY_MS = 50;
const SECOND_MS = 1_000;

/**
 * Sends webhooks that the downstream does not report, under the same cap. Code takes some 20 ms longer when it runs
 * for the first time. At 100 calls a second, that delay would count two calls in the wrong second.
 */
async function warmUp(
  { hooks, workers }: Stage,
  { rate, signal }: { rate: number; signal: AbortSignal },
): Promise<void> {
  const { tenant } = WARM_UP;
  const most = Math.min(rate * WARM_UP_S, PER_WORKER * workers.all.length);
  const events = githubEvents().slice(0, most);
  await Promise.all(
    events.map(({ name: type, payload: data }) => hooks.send({ tenant, type, data })),
  );

  for (let left = events.length; left > 0 && !signal.aborted;) {
    if (workers.crashed > 0) throw new Error("A worker ended before the demo began.");
    await pause(COUNT_EVERY_MS);
    const { waiting, active, delayed } = await hooks.queue.counts();
    left = waiting + active + delayed;
  }
  // Waits for a second, because the downstream's cap counts all calls of the last second.
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
 * Sends webhooks and shows their delivery until all are delivered, no worker is left, time is up or the signal aborts.
 * Resolves with the number of sent webhooks.
 */
async function watch({ given, stage, meter, view, signal }: WatchOptions): Promise<number> {
  const { hooks, customers, tally, workers } = stage;
  const { jobs, rate, seconds } = given;
  const enough = new AbortController();
  const startMs = performance.now();
  let sent = 0;
  const sentTo = new Map<Customer, number>();

  const producing = produce(hooks, {
    customers,
    jobs,
    rate,
    signal: enough.signal,
    onSent(customer) {
      sent += 1;
      sentTo.set(customer, (sentTo.get(customer) ?? 0) + 1);
    },
  });
  // The error is thrown below. This handler only prevents an unhandled rejection.
  producing.catch(() => enough.abort());

  function show(isLast: boolean): void {
    view.show({
      elapsedMs: performance.now() - startMs,
      isLast,
      jobs,
      delivered: tally.delivered,
      backlog: Math.max(0, sent - tally.delivered),
      callsInLastSecond: tally.callsInLastSecond,
      worstSecond: tally.worstSecond,
      refused: tally.refused,
      workers: workers.all,
      deliveredBy: (worker) => tally.deliveredBy(worker),
    });
  }

  /**
   * True if webhooks wait for the cap. Webhooks that wait for their endpoint's separate limit, or for the lock of a
   * dead worker, do not count.
   */
  function isWorkWaiting(): boolean {
    const waiting = customers
      .filter(({ perSecond }) => perSecond === undefined)
      .map((customer) => (sentTo.get(customer) ?? 0) - tally.deliveredTo(customer.tenant));
    const backlog = waiting.reduce((sum, each) => sum + each, 0);
    return backlog > workers.all.length + workers.crashed * workers.concurrency;
  }

  function isOver(): boolean {
    const isTimeUp = performance.now() - startMs >= seconds * 1_000;
    const isAlone = workers.all.every(({ isRunning }) => !isRunning);
    return isTimeUp || isAlone || tally.delivered >= jobs;
  }

  while (!isOver() && !signal.aborted && !enough.signal.aborted) {
    meter.look(isWorkWaiting());
    show(false);
    await pause(LOOK_EVERY_MS, undefined, { signal }).catch(() => undefined);
  }
  enough.abort();
  await producing;
  show(true);
  return sent;
}
