import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { Logger } from "pino";
import type { Handler, Queue, Sluice } from "sluice";
import { runWorker } from "./run-worker.ts";
import type { SettingsOf, Variables, workerVariables } from "./settings.ts";

/** Defines one kind of queue worker: how to open its queue, and how to handle a job. */
export interface QueuePlan<Data, Result> {
  readonly open: (sluice: Sluice) => Queue<Data, Result>;
  readonly handler: (log: Logger, queue: Queue<Data, Result>) => Handler<Data, Result>;
  /** Makes a call like the handler's call, to warm up the process. This call must not send the API key. */
  readonly tryOut: (url: string) => Promise<unknown>;
}

/**
 * Runs a queue worker, configured by the environment, until the process gets a signal. Then closes the worker and ends
 * the process.
 */
export function runQueueWorker<
  Given extends Variables & ReturnType<typeof workerVariables>,
  Data,
  Result,
>(
  variables: Given,
  planOf: (settings: SettingsOf<Given>) => QueuePlan<Data, Result>,
): Promise<never> {
  return runWorker(variables, (settings) => {
    const { open, handler, tryOut } = planOf(settings);
    const { concurrency, closeDeadlineMs, lockMs } = settings as SettingsOf<
      ReturnType<typeof workerVariables>
    >;
    return {
      async start(sluice, log) {
        const queue = open(sluice);
        await warmUp(tryOut);
        sluice.worker(queue, handler(log, queue), { concurrency, closeDeadlineMs, lockMs });
        return { queue: queue.name, bucket: queue.bucket.name };
      },
    };
  });
}

const CALLS = 20;

/**
 * Makes a few calls to a temporary local server that responds with `{}`, and ignores the results. The first call of a
 * process takes about 50 ms longer than later calls, because Node loads `fetch`. Without the warm-up, the first call
 * would arrive late, together with the calls after it, and so exceed the rate.
 */
async function warmUp(call: (url: string) => Promise<unknown>): Promise<void> {
  const server = createServer((request, response) => {
    request.resume();
    response.setHeader("content-type", "application/json").end("{}");
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  for (let count = 0; count < CALLS; count++) await call(url).catch(() => undefined);
  server.close();
  server.closeAllConnections();
}
