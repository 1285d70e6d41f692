import { setTimeout as pause } from "node:timers/promises";
import type { DemoArguments } from "./arguments.ts";
import { produce } from "./producer.ts";
import type { ShareMeter } from "./share-meter.ts";
import type { View } from "./snapshot.ts";
import type { Stage } from "./stage.ts";

const LOOK_EVERY_MS = 250;

export interface WatchOptions {
  readonly given: DemoArguments;
  readonly stage: Stage;
  readonly meter: ShareMeter;
  readonly view: View;
  readonly signal: AbortSignal;
}

/**
 * Lets webhooks be enqueued and shows how they leave, until all are delivered,
 * no worker is left, time is up or the signal comes. Resolves with how many were enqueued.
 */
export async function watch({ given, stage, meter, view, signal }: WatchOptions): Promise<number> {
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
  // What goes wrong is thrown below; until then nobody listens.
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

  /** The jobs that a dead worker held are locked for a while: they do not wait for the cap. */
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
